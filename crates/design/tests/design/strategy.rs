//! Rollout strategies in an environment file and in a file of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use muster_core::names::Role;
use muster_core::rollout::strategy::{Amount, Strategy};
use muster_design::environment::Environment;
use muster_design::file_text::FileText;
use muster_design::finding::{Code, Findings};
use muster_design::strategy;
use proptest::prelude::*;
use proptest::strategy::Strategy as Any;

use crate::findings::ROOT;

fn role(name: &str) -> Role {
    Role::new(name).unwrap()
}

fn parse(text: &str) -> Result<Strategy, Findings> {
    let source = FileText::new("quick.yaml", text);
    strategy::parse(&source, &[role("db"), role("web")]).map(|accepted| accepted.value)
}

fn codes(text: &str) -> Vec<Code> {
    parse(text).unwrap_err().iter().map(|finding| Code::parse(finding.code.as_str()).unwrap()).collect()
}

#[test]
fn strategy_file_equals_the_section() {
    let content = "max_unavailable: {default: 1, web: 20%}\nwaves: [{nodes: 1}, {percent: 100}]\n";
    let indented: String = content.lines().map(|line| format!("  {line}\n")).collect();
    let environment = format!(
        "roles:\n  db: {{cardinality: 1, flavor: s}}\n  web: {{cardinality: 9, flavor: s}}\nrollout:\n{indented}"
    );
    let environment = Environment::parse(&FileText::new("environments/prod.yaml", environment)).unwrap();
    let alone = parse(content).unwrap();
    assert_eq!(environment.value.rollout.as_ref(), Some(&alone));
    assert_eq!(alone.max_unavailable.for_role(&role("web")), Amount::Percent(20));
}

#[test]
fn strategy_file_is_checked_against_the_roles() {
    assert_eq!(codes("max_unavailable: {default: 1, wbe: 20%}"), [Code::BudgetRole]);
}

#[test]
fn empty_file_differs_from_empty_strategy() {
    assert_eq!(codes(""), [Code::EmptyFile]);
    assert_eq!(codes("{}\n---\n{}"), [Code::SeveralDocuments]);
    assert_eq!(parse("{}").unwrap(), Strategy::default());
}

#[test]
fn section_is_not_a_strategy_file() {
    let text = parse("rollout:\n  max_unavailable: 1\n").unwrap_err().to_string();
    assert!(text.contains("unknown key \"rollout\" in the rollout strategy"), "{text}");
}

/// YAML blocks on the page of the book.
fn on_the_page() -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/src/rollout-strategy.md")).unwrap();
    let blocks = page.split("```yaml\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn page_has_the_defaults_and_an_example_without_findings() {
    let [defaults, example] = on_the_page().try_into().unwrap();
    let roles = "roles: {web: {cardinality: 2, flavor: small}}\n";
    let environment = |text: &str| Environment::parse(&FileText::new("environments/prod.yaml", text)).unwrap();
    let defaults = environment(&format!("{roles}{defaults}"));
    assert_eq!((defaults.value.rollout, defaults.warnings.to_string()), (Some(Strategy::default()), String::new()));
    let example = environment(&example);
    assert_eq!(example.warnings.to_string(), "");
    assert_eq!(example.value.rollout.unwrap().check(), Ok(()));
}

#[test]
fn order_of_roles_needs_no_section() {
    let text = "roles: {db: {cardinality: 1, flavor: s}, web: {cardinality: 1, flavor: s, after: [db]}}";
    let environment = Environment::parse(&FileText::new("prod.yaml", text)).unwrap().value;
    assert_eq!(environment.rollout, None);
    let expected = BTreeMap::from([(role("db"), BTreeSet::new()), (role("web"), BTreeSet::from([role("db")]))]);
    assert_eq!(environment.after(), expected);
}

#[test]
fn broken_section_and_broken_roles_are_both_reported() {
    let text = "roles: [web]\nrollout: {max_unavailable: {web: 0}, soak: 5}\n";
    let findings = Environment::parse(&FileText::new("prod.yaml", text)).unwrap_err();
    let codes: Vec<Code> = findings.iter().map(|finding| Code::parse(finding.code.as_str()).unwrap()).collect();
    assert_eq!(codes, [Code::WrongType, Code::BudgetOfNothing, Code::NotADuration]);
}

#[test]
fn password_in_a_url_is_not_shown() {
    let text = parse("gate: {checks: [{http: \"https://admin:hunter2@shop.example/\"}]}").unwrap_err().to_string();
    assert!(text.contains("M1023") && !text.contains("hunter2"), "{text}");
}

#[test]
fn unsupported_url_suggests_a_command() {
    let text = parse("gate: {checks: [{http: \"https://shop.example/\"}]}").unwrap_err().to_string();
    assert!(text.contains("M1911") && text.contains("curl --fail --silent \"https://shop.example/\""), "{text}");
}

#[test]
fn command_as_text_suggests_a_list() {
    let text = parse("gate: {checks: [{command: \"ls -l a:b\"}]}").unwrap_err().to_string();
    assert!(text.contains("write it as a list: [ls, -l, \"a:b\"]"), "{text}");
}

#[test]
fn number_of_waves_is_limited() {
    let waves = |count: u32| (1..count).map(|nodes| format!("{{nodes: {nodes}}}, ")).collect::<String>();
    let with = |count| parse(&format!("waves: [{}{{percent: 100}}]", waves(count)));
    assert!(with(12).is_ok());
    assert!(with(13).unwrap_err().to_string().contains("M1921"));
}

/// Random combinations of parts of strategies.
fn nearly_a_strategy() -> impl Any<Value = String> {
    #[rustfmt::skip]
    const PIECES: &[&str] = &[
        "waves: ", "[{nodes: 1}, {percent: 100}]\n", "{nodes: ", "percent: ", "soak: ", "5m", "-5m", "99999h", "1d", "0", "100%",
        "max_unavailable: ", "{default: ", "per: ", "{label: rack, count: ", "}", "]", "[", ", ", "\n", "gate: ", "checks: ",
        "http: ", "\"http://a\"", "command: ", "windows: ", "days: ", "mon-", "fri", "from: ", "\"02:15\"", "to: ", "\"24:00\"",
        "tz: ", "Europe/Berlin", "deadlines: ", "progress: ", "node: ", "99999999999999999999", "-1", "failures: ", "{", "2.5",
        "windows: [{days: sun, from: \"02:15\", to: \"02:45\", tz: Europe/Berlin}]\n", "retries: ", "4294967296", "~",
    ];
    prop::collection::vec(prop::sample::select(PIECES), 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn parser_of_strategies_terminates(text in nearly_a_strategy()) {
        match parse(&text) {
            Ok(strategy) => {
                prop_assert_eq!(strategy.check(), Ok(()));
                // An accepted strategy survives serialization.
                let json = serde_json::to_string(&strategy).unwrap();
                prop_assert_eq!(serde_json::from_str::<Strategy>(&json).unwrap(), strategy);
            }
            Err(findings) => prop_assert!(findings.has_errors()),
        }
    }
}
