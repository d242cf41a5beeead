//! Parameters of a driver are of use when it is known which one.

use super::says;
use crate::finding::Code;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::DriverWithoutName, Check::Part("driver", check));

fn check(_: &Site<'_>, driver: &Node, out: &mut Out) {
    let Some(parameters) = driver.map().and_then(|map| map.get("parameters")).filter(|entry| !entry.value.is_null())
    else {
        return;
    };
    if !says(driver, "name") {
        let finding = Code::DriverWithoutName.finding("the driver has parameters, and no name");
        out.add(
            parameters.key.span,
            finding.help("say whose parameters they are: driver: {name: NAME, parameters: …}"),
        );
    }
}
