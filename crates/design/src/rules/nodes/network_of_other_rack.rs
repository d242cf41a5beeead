//! A network that does not leave its rack is used in that rack.

use crate::finding::{Code, quote};
use crate::rules::view::interface_networks;
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(crate) const RULE: Rule = Rule::new(Code::NetworkOfOtherRack, Check::Parts(&["interfaces", "rack"], check));

fn check(site: &Site<'_>, node: &Thing<'_>, out: &mut Out) {
    let (Some(part), Some(rack)) = (node.get("interfaces"), node.get("rack")) else { return };
    let Some(name) = rack.text() else { return };
    for network in interface_networks(part) {
        let racks = site.topology().racks_of(network.value);
        if !racks.is_empty() && !racks.contains(&name) {
            let racks = racks.iter().map(|rack| quote(rack)).collect::<Vec<_>>().join(", ");
            let message = format!(
                "network {} does not leave rack {racks}, and is used in rack {}",
                quote(network.value),
                quote(name)
            );
            let finding = Code::NetworkOfOtherRack
                .finding(message)
                .help("use a network of the node's own rack, or take it out of the local_networks");
            out.add_with_note(network.span, finding, "the node's rack is here", rack.span);
        }
    }
}
