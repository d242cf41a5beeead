//! The kinds of documents, one file each: what their fields are.

mod boot_action;
mod cloud;
mod hardware_profile;
mod host_profile;
mod network;
mod network_link;
mod node;
mod rack;
mod region;

use std::fmt;
use std::sync::Arc;

use crate::types::{Field, TEXT_MAP, Type, field};

/// What a document describes.
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
    /// What the generic names of an environment file are in one cloud.
    Cloud,
    /// The JSON Schema of a kind that is not Muster's.
    Schema,
}

/// The kind of a document, one of Muster's or another's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnyKind {
    Known(Kind),
    /// A configuration item: kept, versioned and shown; only its author knows what it means.
    Item(Arc<str>),
}

/// Everything that every document may have beside the fields of its kind. It is inherited like them.
const LABELS: &[Field] = &[field("labels", TEXT_MAP, "Words to select documents by.")];

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

    /// What such a document is for: Markdown, for readers of the book and of schemas.
    pub fn about(self) -> &'static str {
        match self {
            Kind::Region => "What all machines of a site have in common.",
            Kind::Rack => "Where machines stand, and what is in reach there.",
            Kind::NetworkLink => {
                "The cable, or the bundle of cables, that networks share: how it is bonded and trunked, and which networks it \
                 carries."
            }
            Kind::Network => {
                "Addresses that reach each other: IPv4 or IPv6, what parts of it are for, routes, and names."
            }
            Kind::HardwareProfile => {
                "What a sort of machine is made of: firmware, and names for its devices by where they are plugged in, so that \
                 everything else can speak of `nic1`."
            }
            Kind::HostProfile => "Values that nodes, and other profiles, extend.",
            Kind::Node => {
                "One machine. Explicit values stand here, such as addresses; what it shares with others stands in the host \
                 profiles that it extends."
            }
            Kind::BootAction => "What is put on machines when they are first started, and on which.",
            Kind::Cloud => {
                "What the generic names of an environment file are called in one cloud. It is written as a map file, \
                 `environments/<cloud>.map.yaml`, which holds the spec alone."
            }
            Kind::Schema => {
                "The JSON Schema of a kind of your own: documents of the kind that it is named after are checked against it."
            }
        }
    }

    pub fn parse(word: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.word() == word)
    }

    /// The kind that documents of this kind extend.
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

    /// What a document of this kind holds, labels included. A schema's content is not ours.
    pub fn body(self) -> Type {
        match self {
            Kind::Region => Type::Object(&region::BODY),
            Kind::Rack => Type::Object(&rack::BODY),
            Kind::NetworkLink => Type::Object(&network_link::BODY),
            Kind::Network => Type::Object(&network::BODY),
            Kind::HardwareProfile => Type::Object(&hardware_profile::BODY),
            Kind::HostProfile => Type::Object(&host_profile::BODY),
            Kind::Node => Type::Object(&node::BODY),
            Kind::BootAction => Type::Object(&boot_action::BODY),
            Kind::Cloud => Type::Object(&cloud::BODY),
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

    /// What a document of this kind holds.
    pub(crate) fn body(&self) -> Type {
        match self {
            AnyKind::Known(kind) => kind.body(),
            AnyKind::Item(_) => Type::Any,
        }
    }

    /// The kind that documents of this kind extend.
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
