//! A network link, as rules read it.

use super::Placed;
use crate::rules::Thing;
use crate::span::Span;
use crate::yaml::Node;

#[derive(Debug)]
pub(crate) struct Link<'d> {
    pub name: &'d str,
    pub at: Span,
    pub mtu: Option<Placed<i64>>,
    /// What is said about bonding, if anything.
    pub bonding: Option<&'d Node>,
    pub is_trunk: bool,
    pub default_network: Option<Placed<&'d str>>,
    pub allowed: Vec<Placed<&'d str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BondMode {
    Disabled,
    Lacp,
    ActiveBackup,
    BalanceRr,
}

impl<'d> Link<'d> {
    pub(super) fn read(thing: &Thing<'d>) -> Self {
        let trunking = thing.get("trunking");
        Link {
            name: thing.name,
            at: thing.at,
            mtu: Placed::integer(thing.tree, "mtu"),
            bonding: thing.get("bonding"),
            is_trunk: trunking.and_then(|trunking| trunking.get("mode")?.text()) == Some("802.1q"),
            default_network: trunking.and_then(|trunking| Placed::text(trunking, "default_network")),
            allowed: Placed::texts(thing.tree, "allowed_networks"),
        }
    }

    /// How several devices work as one. Without a word about it they do not; a word that is not known is reported
    /// elsewhere, and nothing can be said about it here.
    pub(crate) fn bond_mode(&self) -> Option<BondMode> {
        match self.bonding.and_then(|bonding| bonding.get("mode")).map(Node::text) {
            None | Some(Some("disabled")) => Some(BondMode::Disabled),
            Some(Some("802.3ad")) => Some(BondMode::Lacp),
            Some(Some("active-backup")) => Some(BondMode::ActiveBackup),
            Some(Some("balance-rr")) => Some(BondMode::BalanceRr),
            Some(_) => None,
        }
    }

    pub(crate) fn allows(&self, network: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed.value == network)
    }

    /// What is said about one matter of bonding.
    pub(crate) fn bonding_option(&self, key: &str) -> Option<&'d Node> {
        self.bonding?.get(key)
    }

    /// A number among what is said about bonding.
    pub(crate) fn bonding_integer(&self, key: &str) -> Option<Placed<i64>> {
        Placed::integer(self.bonding?, key)
    }
}

impl BondMode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            BondMode::Disabled => "disabled",
            BondMode::Lacp => "802.3ad",
            BondMode::ActiveBackup => "active-backup",
            BondMode::BalanceRr => "balance-rr",
        }
    }
}
