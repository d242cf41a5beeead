//! What follows from a node's effective values, and is written nowhere: its full name, its name servers, its
//! routes, its hardware, its kernel parameters and its boot actions.
//!
//! Everything here is a pure function of the effective design. It changes nothing in it, so that resolving twice gives
//! the same; and nothing is resolved before somebody asks.

pub(crate) mod boot_actions;
mod devices;
mod dns;
mod fqdn;
pub(crate) mod kernel_params;
mod routes;

use serde::Serialize;

pub use devices::{Device, Devices};
pub use dns::Dns;
pub(crate) use dns::domain;
pub(crate) use fqdn::{fqdn, host_name};
pub use kernel_params::{KernelParam, KernelParams};
pub use routes::Route;

use crate::rules::{Site, Thing};

/// What follows from the values of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resolved {
    /// The node's own label: `web1`.
    pub host_name: String,
    /// The host name with the domain of the primary network: `web1.example.org`.
    pub fqdn: String,
    pub dns: Dns,
    /// The routes of all networks that the node is in, routing domains written out.
    pub routes: Vec<Route>,
    /// Which hardware its interfaces and disks are.
    pub devices: Devices,
    pub kernel_params: KernelParams,
    /// The boot actions that it gets, by name.
    pub boot_actions: Vec<String>,
}

pub(crate) fn resolve(site: &Site<'_>, node: &Thing<'_>) -> Resolved {
    Resolved {
        host_name: host_name(node).into_owned(),
        fqdn: fqdn(site, node),
        dns: dns::dns(site, node),
        routes: routes::of_node(site, node),
        devices: devices::devices(site, node),
        kernel_params: kernel_params::kernel_params(site, node),
        boot_actions: boot_actions::of_node(site, node),
    }
}
