//! Addresses of a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

/// Interface name → address, sorted by name.
///
/// Servers and agents hold those of all nodes, in several places. Copies share one allocation that has the size of its content; the
/// smallest map has room for eleven entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(from = "BTreeMap<String, String>")]
#[schema(value_type = BTreeMap<String, String>)]
pub struct Interfaces(Arc<[(Box<str>, Box<str>)]>);

impl Interfaces {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, address)| (name.as_ref(), address.as_ref()))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(_, address)| address)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(other, _)| other.as_ref().cmp(name)).ok()?;
        Some(self.0.get(at)?.1.as_ref())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<BTreeMap<String, String>> for Interfaces {
    fn from(map: BTreeMap<String, String>) -> Self {
        Self(map.into_iter().map(|(name, address)| (name.into(), address.into())).collect())
    }
}

impl FromIterator<(String, String)> for Interfaces {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(all: I) -> Self {
        BTreeMap::from_iter(all).into()
    }
}

impl<const N: usize> From<[(String, String); N]> for Interfaces {
    fn from(all: [(String, String); N]) -> Self {
        Self::from_iter(all)
    }
}

impl Serialize for Interfaces {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_a_sorted_map() {
        let all = Interfaces::from([("lo", "127.0.0.1"), ("eth0", "10.0.0.1"), ("eth0", "10.0.0.2")].map(owned));
        assert_eq!((all.len(), all.get("eth0"), all.get("eth1")), (2, Some("10.0.0.2"), None));
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(text, r#"{"eth0":"10.0.0.2","lo":"127.0.0.1"}"#);
        assert_eq!(serde_json::from_str::<Interfaces>(&text).unwrap(), all);
        assert!(Interfaces::new().is_empty());
    }

    fn owned((name, address): (&str, &str)) -> (String, String) {
        (name.to_owned(), address.to_owned())
    }
}
