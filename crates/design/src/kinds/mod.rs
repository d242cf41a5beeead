//! Kinds of documents and their fields.

mod hosts;
mod sites;

use std::fmt;
use std::sync::Arc;

use crate::types::{Field, TEXT_MAP, Type, field};

/// Built-in kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Region,
    Rack,
    NetworkLink,
    Network,
    HardwareProfile,
    HostProfile,
    Node,
    BootAction,
    /// Map of generic names to the names of one cloud.
    Cloud,
    /// JSON Schema of a kind that is not built in.
    Schema,
}

/// Kind of a document, built in or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnyKind {
    Known(Kind),
    /// A configuration item: stored, versioned and shown, without a meaning to Muster.
    Item(Arc<str>),
}

/// Fields that every kind has. They are inherited like the rest.
const LABELS: &[Field] = &[field("labels", TEXT_MAP, "Labels to select documents by.")];

impl Kind {
    pub const ALL: &[Kind] = &[
        Kind::Region,
        Kind::Rack,
        Kind::NetworkLink,
        Kind::Network,
        Kind::HardwareProfile,
        Kind::HostProfile,
        Kind::Node,
        Kind::BootAction,
        Kind::Cloud,
        Kind::Schema,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Kind::Region => "Region",
            Kind::Rack => "Rack",
            Kind::NetworkLink => "NetworkLink",
            Kind::Network => "Network",
            Kind::HardwareProfile => "HardwareProfile",
            Kind::HostProfile => "HostProfile",
            Kind::Node => "Node",
            Kind::BootAction => "BootAction",
            Kind::Cloud => "Cloud",
            Kind::Schema => "Schema",
        }
    }

    /// Purpose of the kind: Markdown for the book and the schemas.
    pub fn about(self) -> &'static str {
        match self {
            Kind::Region => "Settings that all machines of a site share.",
            Kind::Rack => "Location of machines, and the networks and switches of the rack.",
            Kind::NetworkLink => {
                "The cable, or the bundle of cables, that networks share: its bond, its trunk, and the networks that it carries."
            }
            Kind::Network => "A network of IPv4 or IPv6: its addresses, ranges, routes, and DNS.",
            Kind::HardwareProfile => {
                "A type of machine: its firmware, and names for its devices by bus and address, such as `nic1`."
            }
            Kind::HostProfile => "Values that nodes and other profiles inherit.",
            Kind::Node => {
                "One machine. Its own values are here, such as addresses; shared values are in the host profiles that it \
                 extends."
            }
            Kind::BootAction => {
                "Files, units and packages that are installed on the first boot, and the machines that get them."
            }
            Kind::Cloud => {
                "Names of flavors and images in one cloud. It is written as a map file, `environments/<cloud>.map.yaml`, \
                 which has the spec only."
            }
            Kind::Schema => {
                "The JSON Schema of a kind of your own. Documents of the kind with the same name are checked against it."
            }
        }
    }

    pub fn parse(word: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.word() == word)
    }

    /// Kind that documents of this kind extend.
    pub fn parents(self) -> Kind {
        match self {
            Kind::Node => Kind::HostProfile,
            Kind::Region
            | Kind::Rack
            | Kind::NetworkLink
            | Kind::Network
            | Kind::HardwareProfile
            | Kind::HostProfile
            | Kind::BootAction
            | Kind::Cloud
            | Kind::Schema => self,
        }
    }

    /// Type of the content, including labels. The content of a schema is not checked here.
    pub fn body(self) -> Type {
        match self {
            Kind::Region => Type::Object(&sites::REGION_BODY),
            Kind::Rack => Type::Object(&sites::RACK_BODY),
            Kind::NetworkLink => Type::Object(&sites::NETWORK_LINK_BODY),
            Kind::Network => Type::Object(&sites::NETWORK_BODY),
            Kind::HardwareProfile => Type::Object(&hosts::HARDWARE_PROFILE_BODY),
            Kind::HostProfile => Type::Object(&hosts::HOST_PROFILE_BODY),
            Kind::Node => Type::Object(&hosts::NODE_BODY),
            Kind::BootAction => Type::Object(&hosts::BOOT_ACTION_BODY),
            Kind::Cloud => Type::Object(&sites::CLOUD_BODY),
            Kind::Schema => Type::Any,
        }
    }
}

impl AnyKind {
    pub fn new(word: &str) -> Self {
        Kind::parse(word).map_or_else(|| AnyKind::Item(word.into()), AnyKind::Known)
    }

    pub fn word(&self) -> &str {
        match self {
            AnyKind::Known(kind) => kind.word(),
            AnyKind::Item(word) => word,
        }
    }

    /// Type of the content.
    pub(crate) fn body(&self) -> Type {
        match self {
            AnyKind::Known(kind) => kind.body(),
            AnyKind::Item(_) => Type::Any,
        }
    }

    /// Kind that documents of this kind extend.
    pub(crate) fn parents(&self) -> AnyKind {
        match self {
            AnyKind::Known(kind) => AnyKind::Known(kind.parents()),
            AnyKind::Item(_) => self.clone(),
        }
    }
}

impl From<Kind> for AnyKind {
    fn from(kind: Kind) -> Self {
        AnyKind::Known(kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl fmt::Display for AnyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
