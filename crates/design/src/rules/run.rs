//! Runs the rules: those about the site once, those about nodes on each of them, on all processors.

use std::sync::Arc;

use super::claims::{Claim, Claims, Taken};
use super::out::{Out, Raw};
use super::site::{Site, Thing};
use super::view::{Interface, interfaces, placements};
use super::{Check, RULES, Rule};
use crate::span::Span;
use crate::table::Table;
use crate::yaml::{Node, Value};

/// What the rules have found on nodes, kept so that one node can be looked at anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    /// By subject; only those with something to say.
    raws: Table<usize, Arc<[Raw]>>,
    /// By rule and claim: who makes it.
    claims: Table<(usize, Claim), Vec<Claimant>>,
    /// What each subject claims, to take it back.
    claimed: Table<usize, Arc<[(usize, Claim)]>>,
}

#[derive(Clone, Debug)]
struct Claimant {
    subject: usize,
    name: Arc<str>,
    span: Span,
}

/// The rules about everything but the nodes: when nothing but nodes has changed, they need not be asked again.
pub(crate) fn check_site(site: &Site<'_>) -> Vec<Raw> {
    ask(site, |check| if let Check::Site(check) = check { Some(*check) } else { None })
}

/// The rules about all nodes together.
pub(crate) fn check_fleet(site: &Site<'_>) -> Vec<Raw> {
    ask(site, |check| if let Check::Fleet(check) = check { Some(*check) } else { None })
}

fn ask(site: &Site<'_>, wanted: impl Fn(&Check) -> Option<fn(&Site<'_>, &mut Out)>) -> Vec<Raw> {
    let mut out = Out::default();
    for check in RULES.iter().filter_map(|rule| wanted(&rule.check)) {
        check(site, &mut out);
    }
    out.raws
}

/// Looks at nodes, by subject, and takes what is found into the results.
pub(crate) fn check_hosts(site: &Site<'_>, hosts: &[usize], results: &mut Results) {
    for looked in crate::compile::in_parallel(hosts, |hosts| look(site, hosts)) {
        for Looked { subject, name, raws, claims } in looked {
            results.forget(subject);
            if !raws.is_empty() {
                results.raws.insert(subject, raws.into());
            }
            let mut claimed = Vec::with_capacity(claims.len());
            for (rule, claim, span) in claims {
                let claimant = Claimant { subject, name: name.clone(), span };
                results.claims.entry((rule, claim.clone())).or_default().push(claimant);
                claimed.push((rule, claim));
            }
            if !claimed.is_empty() {
                results.claimed.insert(subject, claimed.into());
            }
        }
    }
}

impl Results {
    /// Forgets a node.
    pub(crate) fn forget(&mut self, subject: usize) {
        self.raws.remove(&subject);
        for key in self.claimed.remove(&subject).iter().flat_map(|claimed| claimed.iter()) {
            if let Some(claimants) = self.claims.get_mut(key) {
                claimants.retain(|claimant| claimant.subject != subject);
                if claimants.is_empty() {
                    self.claims.remove(key);
                }
            }
        }
    }

    /// Everything that was found, in no particular order.
    pub(crate) fn raws(&self) -> impl Iterator<Item = Raw> {
        let single = self.raws.values().flat_map(|raws| raws.iter().cloned());
        let shared = self.claims.iter().filter(|(_, claimants)| claimants.len() > 1);
        single.chain(shared.flat_map(|((rule, claim), claimants)| taken(*rule, claim, claimants)))
    }
}

/// A claim that several make: all but the first are told, with where the first is.
fn taken(rule: usize, claim: &Claim, claimants: &[Claimant]) -> Vec<Raw> {
    let mut claimants: Vec<&Claimant> = claimants.iter().collect();
    // By name, and not by the number of a file: that depends on which one was changed last.
    claimants.sort_by_key(|claimant| (&claimant.name, claimant.span.start, claimant.span.end));
    let (Some((first, others)), Some(rule)) = (claimants.split_first(), RULES.get(rule)) else { return Vec::new() };
    let Check::Unique { taken, .. } = &rule.check else { return Vec::new() };
    let raw = |other: &&Claimant| {
        let message = taken(&Taken { claim, first: &first.name, second: &other.name });
        Raw {
            span: other.span,
            finding: rule.code.finding(message),
            notes: vec![("the first one is here".to_owned(), first.span)],
            node: Some(other.name.clone()),
        }
    };
    others.iter().map(raw).collect()
}

/// What was found on one node.
struct Looked {
    subject: usize,
    name: Arc<str>,
    raws: Vec<Raw>,
    claims: Vec<(usize, Claim, Span)>,
}

fn look(site: &Site<'_>, hosts: &[usize]) -> Vec<Looked> {
    let mut parts = Parts::default();
    let mut claimed = Vec::new();
    let mut all = Vec::with_capacity(hosts.len());
    for &subject in hosts {
        let Some(host) = site.thing(subject) else { continue };
        let name: Arc<str> = site.subjects[subject].name.clone();
        let mut out = Out { node: Some(name.clone()), ..Out::default() };
        let mut claims = Vec::new();
        for (number, rule) in RULES.iter().enumerate() {
            match &rule.check {
                Check::Site(_) | Check::Fleet(_) | Check::Interfaces(_) | Check::Address(_) => {}
                Check::Node(check) => check(site, &host, &mut out),
                Check::Part(key, check) => {
                    if let Some(part) = host.get(key) {
                        parts.look(number, &[Some(part)], |out| check(site, part, out), &mut out);
                    }
                }
                Check::Parts(keys, check) => {
                    let looked_at: Vec<Option<&Node>> = keys.iter().map(|key| host.get(key)).collect();
                    parts.look(number, &looked_at, |out| check(site, &host, out), &mut out);
                }
                Check::Unique { claim, .. } => {
                    claim(site, &host, &mut Claims { claimed: &mut claimed });
                    claims.extend(claimed.drain(..).map(|(claim, span)| (number, claim, span)));
                }
            }
        }
        if let Some(part) = host.get("interfaces") {
            parts.look(ALL_OF_INTERFACES, &[Some(part)], |out| check_interfaces(site, part, out), &mut out);
        }
        check_addresses(site, &host, &mut out);
        all.push(Looked { subject, name, raws: out.raws, claims });
    }
    all
}

/// Stands for all rules about interfaces where the number of one is asked for.
const ALL_OF_INTERFACES: usize = usize::MAX;

fn check_interfaces(site: &Site<'_>, part: &Node, out: &mut Out) {
    let interfaces: Vec<Interface<'_>> = interfaces(part).collect();
    for rule in RULES {
        if let Check::Interfaces(check) = &rule.check {
            check(site, &interfaces, out);
        }
    }
}

fn check_addresses(site: &Site<'_>, host: &Thing<'_>, out: &mut Out) {
    for placement in placements(site, host) {
        for rule in RULES {
            if let Check::Address(check) = &rule.check {
                check(&placement, out);
            }
        }
    }
}

/// What was found in parts that were looked at already. A part is known by where it is in memory: what two nodes inherit
/// from one profile is one value. The site outlives this, so no place is used twice.
#[derive(Default)]
struct Parts {
    seen: Table<(usize, Places), Vec<Raw>>,
}

/// Where the parts are that a rule looks at; none for one that is not there.
type Places = [*const (); MOST_PARTS];
const MOST_PARTS: usize = 4;

impl Parts {
    fn look(&mut self, rule: usize, parts: &[Option<&Node>], check: impl FnOnce(&mut Out), out: &mut Out) {
        let mut places: Places = [std::ptr::null(); MOST_PARTS];
        debug_assert!(parts.len() <= MOST_PARTS, "a rule looks at more parts than are told apart");
        for (place, part) in places.iter_mut().zip(parts) {
            *place = part.map_or(std::ptr::null(), place_of);
        }
        let raws = self.seen.entry((rule, places)).or_insert_with(|| {
            let mut out = Out::default();
            check(&mut out);
            out.raws
        });
        for raw in raws {
            out.push(Raw { node: out.node.clone(), ..raw.clone() });
        }
    }
}

fn place_of(part: &Node) -> *const () {
    match &part.value {
        Value::Map(map) => Arc::as_ptr(map).cast::<()>(),
        Value::Seq(items) => Arc::as_ptr(items).cast::<()>(),
        Value::Scalar(scalar) => scalar.text().as_ptr().cast::<()>(),
    }
}

impl Rule {
    pub(crate) const fn new(code: crate::finding::Code, check: Check) -> Rule {
        Rule { code, check }
    }
}
