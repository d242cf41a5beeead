//! The type of an out-of-band access should be one that Muster knows, or a custom driver's.

use super::{TYPES, says};
use crate::finding::{Code, quote};
use crate::rules::view::Placed;
use crate::rules::{Check, Out, Rule, Site, Thing};
use crate::spelling;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::OobTypeUnknown, Check::Parts(&["oob", "driver"], check));

fn check(_: &Site<'_>, host: &Thing<'_>, out: &mut Out) {
    let Some(access) = host.get("oob").and_then(|oob| Placed::text(oob, "type")) else { return };
    // A driver of somebody else's has words of its own.
    let has_driver = host.get("driver").is_some_and(|driver| says(driver, "name"));
    if TYPES.contains(&access.value) || has_driver {
        return;
    }
    let message = format!("{} is no type of out-of-band access that Muster knows", quote(access.value));
    let help = match spelling::nearest(access.value, TYPES.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("known: {}; for another one, name its driver: driver: {{name: NAME}}", TYPES.join(", ")),
    };
    out.add(access.span, Code::OobTypeUnknown.finding(message).help(help));
}
