//! A node is in a network through one interface.

use std::collections::HashMap;

use crate::finding::{Code, quote};
use crate::rules::{Check, Interface, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::NetworkTwice, Check::Interfaces(check));

fn check(_: &Site<'_>, interfaces: &[Interface<'_>], out: &mut Out) {
    let mut through = HashMap::new();
    for interface in interfaces {
        for network in &interface.networks {
            let (first, at) = *through.entry(network.value).or_insert((interface.name, network.span));
            if first != interface.name {
                let message = format!(
                    "interfaces {} and {} are both in network {}",
                    quote(first),
                    quote(interface.name),
                    quote(network.value)
                );
                let finding = Code::NetworkTwice
                    .finding(message)
                    .help("leave it to one of them; an inherited network is removed with '!NAME'");
                out.add_with_note(network.span, finding, "the first one has it here", at);
            }
        }
    }
}
