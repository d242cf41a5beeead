//! Property tests with sites of all kinds and slightly wrong values: rules and resolution terminate, and are
//! deterministic.
//!
//! Values are generated from the types of the kinds, with a small vocabulary: unused networks and distant addresses
//! would reach few rules. Choices are read from bytes.

use std::collections::BTreeSet;

use muster_design::file_text::FileText;
use muster_design::finding::Code;
use muster_design::kinds::Kind;
use muster_design::source::DesignSource;
use muster_design::types::{Object, TextFormat, Type};
use muster_design::{CheckedDesign, CompileOptions, Design};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

/// Names of documents.
const NAMES: &[&str] = &["a", "b", "c"];
/// Values that no type accepts.
const JUNK: &[&str] = &["", "!a", "!*", "ä", "10.0.0.0/99", "-1", "0x10", "dhcp", "99999999999999999999"];
/// Kinds of most documents: they refer to each other.
const KINDS: &[Kind] = &[
    Kind::Node,
    Kind::Node,
    Kind::Node,
    Kind::Network,
    Kind::Network,
    Kind::NetworkLink,
    Kind::HostProfile,
    Kind::HardwareProfile,
    Kind::BootAction,
    Kind::Rack,
    Kind::Region,
    Kind::Cloud,
    Kind::Schema,
];

struct Choices {
    bytes: Vec<u8>,
    next: usize,
}

impl Choices {
    fn pick(&mut self, of: usize) -> usize {
        let byte = self.bytes.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        usize::from(byte) % of.max(1)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.pick(of.len())]
    }

    fn rarely(&mut self, n: usize) -> bool {
        self.pick(n) == n - 1
    }

    fn document(&mut self) -> Value {
        let kind = self.one(KINDS);
        let spec = self.value(&kind.body(), 0);
        let mut document = json!({"kind": kind.word(), "name": self.one(NAMES), "spec": spec});
        let has_role = kind == Kind::Node && !self.rarely(8);
        if let Some(spec) = document["spec"].as_object_mut().filter(|_| has_role) {
            spec.insert("role".into(), json!("web"));
        }
        if self.rarely(3) {
            document["extends"] = json!([self.one(NAMES)]);
        }
        document
    }

    fn object(&mut self, object: &Object, depth: usize) -> Value {
        let mut map = Map::new();
        for field in object.fields() {
            // Deeper objects get more fields: few objects would be complete by chance.
            if self.pick(4) < 2 + depth {
                let name = if self.rarely(30) { format!("!{}", field.name) } else { field.name.to_owned() };
                map.insert(name, self.value(&field.ty, depth + 1));
            }
        }
        Value::Object(map)
    }

    fn value(&mut self, ty: &Type, depth: usize) -> Value {
        if self.rarely(30) {
            return self.any(depth);
        }
        match ty {
            Type::Text(format) => json!(self.one(texts(*format))),
            Type::Integer { min, max } => {
                json!(self.one(&[100, 1500, 9000, 0, 1, 1280, 65_537, *min, *max, i64::MIN, i64::MAX]))
            }
            Type::Bool => json!(self.rarely(2)),
            Type::OneOf(words) => json!(self.one(words)),
            Type::Scalar => json!(self.one(&["a", "hardwareprofile:cpuset.a", "hardwareprofile:hugepages.a.size"])),
            Type::Reference(_) => json!(self.one(NAMES)),
            Type::Secret => json!({"secret": self.one(NAMES)}),
            Type::List(item) | Type::ReplacedList(item) => {
                (0..self.pick(4)).map(|_| self.value(item, depth + 1)).collect()
            }
            Type::Keyed { item, .. } => (0..self.pick(4)).map(|_| self.object(item, 2)).collect(),
            Type::Map(item) => {
                let entries = (0..self.pick(3)).map(|_| (self.one(NAMES).to_owned(), self.value(item, depth + 1)));
                Value::Object(entries.collect())
            }
            Type::Object(object) => self.object(object, depth + 1),
            Type::Any => self.any(depth),
        }
    }

    fn any(&mut self, depth: usize) -> Value {
        match self.pick(if depth < 5 { 6 } else { 4 }) {
            0 => Value::Null,
            1 => json!(self.one(JUNK)),
            2 => json!(self.one(&[0.5, 1e300, -1.0])),
            3 => json!(self.one(&[i64::MIN, -1, 0, i64::MAX])),
            4 => (0..self.pick(3)).map(|_| self.any(depth + 1)).collect(),
            _ => json!({self.one(NAMES): self.any(depth + 1), self.one(JUNK): null}),
        }
    }
}

fn texts(format: TextFormat) -> &'static [&'static str] {
    match format {
        TextFormat::Any => &["a", "b", "web"],
        TextFormat::Address | TextFormat::AddressOrDhcp => &[
            "10.0.0.1",
            "10.0.0.255",
            "10.0.0.0",
            "10.0.1.7",
            "fd00::1",
            "fd00::",
            "fe80::1",
            "255.255.255.255",
            "0.0.0.0",
            "::",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "::ffff:10.0.0.1",
            "dhcp",
        ],
        TextFormat::Cidr => &[
            "10.0.0.0/24",
            "10.0.0.0/16",
            "10.0.0.1/31",
            "0.0.0.0/0",
            "255.255.255.255/32",
            "fd00::/64",
            "fd00::1/128",
            "::/0",
        ],
        TextFormat::Mac => &["52:54:00:12:34:56", "52-54-00-12-34-56", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"],
        TextFormat::Size | TextFormat::Bytes => &["10g", "60%", "100%", ">1g", "0g", "9000t", "0.1%", "1ki"],
        TextFormat::HostName => &["web1", "a"],
        TextFormat::Domain => &["example.org", "local"],
        TextFormat::Uuid => &["8e3d3c04-7b1f-4bd4-a9a4-5b8b2d3c1a00"],
        TextFormat::AbsolutePath => &["/", "/boot", "/a", "none"],
        TextFormat::Permissions => &["0644", "777"],
        TextFormat::CpuSet => &["1-2", "0-65535"],
    }
}

/// Documents of a site, one file for each source.
fn site() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(any::<u8>(), 0..2500).prop_map(|bytes| {
        let mut choices = Choices { bytes, next: 0 };
        let mut files = vec![String::new(); 1 + choices.pick(2)];
        while choices.next < choices.bytes.len() {
            let document = choices.document().to_string();
            let file = choices.pick(files.len());
            files[file].push_str(&format!("---\n{document}\n"));
        }
        files
    })
}

fn compile(files: &[String]) -> CheckedDesign {
    let bundle = |(number, text): (usize, &String)| DesignSource {
        name: format!("source{number}"),
        files: vec![FileText::new(format!("site{number}.yaml"), text.clone())],
    };
    Design::compile(files.iter().enumerate().map(bundle).collect(), &CompileOptions::default())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_terminate_and_are_deterministic(files in site()) {
        let CheckedDesign { design, findings } = compile(&files);
        prop_assert_eq!(compile(&files).findings.to_string(), findings.to_string());
        for (_, name, _) in design.effective_documents().filter(|(kind, ..)| kind.word() == "Node") {
            let resolved = design.resolved(name);
            prop_assert!(resolved.is_some());
            prop_assert_eq!(design.resolved(name), resolved);
        }
    }
}

/// Fails if a change of the generator leaves most rules unreached by the test above.
#[test]
fn generated_sites_reach_most_rules() {
    let mut runner = TestRunner::deterministic();
    let mut reached: BTreeSet<Code> = BTreeSet::new();
    for _ in 0..150 {
        let files = site().new_tree(&mut runner).unwrap().current();
        reached.extend(compile(&files).findings.iter().map(|finding| Code::parse(finding.code.as_str()).unwrap()));
    }
    let rules: Vec<Code> =
        Code::ALL.iter().copied().filter(|code| ("M1100".."M1700").contains(&code.as_str())).collect();
    let missed: Vec<Code> = rules.iter().copied().filter(|code| !reached.contains(code)).collect();
    assert!(missed.len() * 4 < rules.len(), "not reached: {missed:?}");
}
