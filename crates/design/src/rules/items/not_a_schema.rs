//! A document of kind Schema must hold a JSON Schema.

use super::at_pointer;
use super::prepare::prepare;
use crate::finding::Code;
use crate::kinds::Kind;
use crate::rules::{Check, Out, Rule, Site};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::NotASchema, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for schema in site.all(Kind::Schema) {
        if let Err(refused) = prepare(&schema) {
            let finding = Code::NotASchema.finding(refused.message);
            out.add(at_pointer(schema.tree, &refused.at).span, finding.help(refused.help));
        }
    }
}
