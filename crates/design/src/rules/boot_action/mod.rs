//! Rules about boot actions: what they put onto machines, and which machines they select.

pub(super) mod asset_incomplete;
pub(super) mod content_twice;
pub(super) mod name_unknown;
pub(super) mod node_without;
pub(super) mod package_version;
pub(super) mod path_twice;
pub(super) mod selects_nothing;
pub(super) mod unit_name;

use crate::kinds::Kind;
use crate::rules::view::{Placed, items};
use crate::rules::{Site, Thing};
use crate::yaml::Node;

/// Something that a boot action puts onto machines.
struct Asset<'d> {
    name: Placed<&'d str>,
    kind: Option<Placed<&'d str>>,
    node: &'d Node,
}

/// All assets of all boot actions, by boot action.
fn assets<'d>(site: &Site<'d>) -> impl Iterator<Item = (Thing<'d>, Vec<Asset<'d>>)> + use<'d> {
    let asset = |node: &'d Node| {
        let kind = Placed::text(node, "type");
        Some(Asset { name: Placed::text(node, "name")?, kind, node })
    };
    site.all(Kind::BootAction).into_iter().map(move |action| {
        let assets = items(action.tree, "assets").iter().filter_map(asset).collect();
        (action, assets)
    })
}

impl<'d> Asset<'d> {
    fn says(&self, key: &str) -> bool {
        self.node.get(key).is_some_and(|value| !value.is_null())
    }

    fn path(&self) -> Option<Placed<&'d str>> {
        Placed::text(self.node, "path")
    }

    fn is(&self, kind: &str) -> bool {
        self.kind.is_some_and(|own| own.value == kind)
    }
}
