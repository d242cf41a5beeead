//! What is reached over a network with a password needs to say which, and whose.

use super::{remote_type, says};
use crate::finding::Code;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::OobIncomplete, Check::Part("oob", check));

fn check(_: &Site<'_>, oob: &Node, out: &mut Out) {
    let Some(access) = remote_type(oob) else { return };
    let missing: Vec<&str> = ["network", "account", "credential"].into_iter().filter(|key| !says(oob, key)).collect();
    if missing.is_empty() {
        return;
    }
    let message =
        format!("the out-of-band access of type \"{}\" has no \"{}\"", access.value, missing.join("\" and no \""));
    let help = "it needs a network, an account and a credential, which names a secret: credential: {secret: NAME}";
    out.add(access.span, Code::OobIncomplete.finding(message).help(help));
}
