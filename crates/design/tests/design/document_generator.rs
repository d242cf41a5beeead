//! Generator of arbitrary documents that inherit from each other, from the types of real kinds.
//!
//! The vocabulary is small, so that layers often set the same values. Choices are read from bytes. Missing bytes mean
//! the smallest choice, so that failures can be shrunk.

use muster_design::file_text::FileText;
use muster_design::kinds::Kind;
use muster_design::source::DesignSource;
use muster_design::types::{Field, Object, TextFormat, Type};
use muster_design::{CheckedDesign, CompileOptions, Design};
use proptest::prelude::*;

use crate::reference_model::Tree;

/// Source of choices.
#[derive(Clone, Debug)]
pub(crate) struct ByteChoices {
    bytes: Vec<u8>,
    next: usize,
    /// Selects the few fields of a kind that are used: the same in all layers of a design.
    salt: usize,
    /// Generates values of wrong types too.
    with_mistakes: bool,
}

impl ByteChoices {
    fn pick(&mut self, of: usize) -> usize {
        let byte = self.bytes.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        usize::from(byte) % of.max(1)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.pick(of.len())]
    }

    /// True with probability 1/`n`; false when no bytes are left.
    fn rarely(&mut self, n: usize) -> bool {
        self.pick(n) == n - 1
    }
}

/// A document to write.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub source: usize,
    pub kind: &'static str,
    pub name: String,
    pub extends: Option<Vec<String>>,
    pub body: Tree,
}

/// Documents of a design.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedSite {
    pub layers: Vec<Layer>,
}

/// A node of an environment file, which also has a written document.
const NODE: &str = "web1";
const ENVIRONMENT: &str = "\
roles:
  web:
    cardinality: 1
    flavor: a
    failure_domain: b
    labels: {a: b}
    profile: d0
";

/// Built-in kinds, and kinds of configuration items.
const KINDS: &[&str] = &[
    "HostProfile",
    "Node",
    "acme/Item",
    "Network",
    "BootAction",
    "Region",
    "HardwareProfile",
    "NetworkLink",
    "Rack",
    "HostProfile",
    "acme/Item",
];
const NAMES: [&str; 3] = ["a", "b", "c"];
pub(crate) const SOURCES: [&str; 2] = ["site", "lab"];

pub(crate) fn body_type(kind: &str) -> Type {
    Kind::parse(kind).map_or(Type::Any, Kind::body)
}

/// Documents of one kind, in two sources, that extend each other. With mistakes they also have cycles, unknown parents
/// and values of wrong types.
pub(crate) fn generated_site(with_mistakes: bool) -> impl Strategy<Value = GeneratedSite> {
    prop::collection::vec(any::<u8>(), 0..500).prop_map(move |bytes| {
        let mut choices = ByteChoices { bytes, next: 0, salt: 0, with_mistakes };
        let picked = choices.one(KINDS);
        let kind = if picked == "Node" { "HostProfile" } else { picked };
        choices.salt = choices.pick(256);
        let number = 1 + choices.pick(5);
        let name = |number: usize| format!("d{number}");
        let mut layers = Vec::new();
        for at in 0..number {
            let extends = parents(&mut choices, at, number, with_mistakes);
            let body = object_of(kind, &mut choices);
            layers.push(Layer { source: 0, kind, name: name(at), extends, body });
            if choices.rarely(4) {
                let extends = if choices.rarely(3) { parents(&mut choices, at, number, with_mistakes) } else { None };
                let body = object_of(kind, &mut choices);
                layers.push(Layer { source: 1, kind, name: name(at), extends, body });
            }
        }
        if picked == "Node" {
            let extends = parents(&mut choices, number, number, with_mistakes);
            let body = object_of("Node", &mut choices);
            layers.push(Layer { source: 0, kind: "Node", name: NODE.into(), extends, body });
        }
        GeneratedSite { layers }
    })
}

/// Parents of a document. Mostly earlier documents, to avoid cycles.
fn parents(choices: &mut ByteChoices, at: usize, number: usize, with_mistakes: bool) -> Option<Vec<String>> {
    let mut parents: Vec<String> = Vec::new();
    for _ in 0..choices.pick(3) + usize::from(at > 0) {
        let parent = match with_mistakes && choices.rarely(8) {
            true => choices.pick(number + 1),
            false if at == 0 => continue,
            false => choices.pick(at),
        };
        let parent = format!("d{parent}");
        if !parents.contains(&parent) {
            parents.push(parent);
        }
    }
    (!parents.is_empty()).then_some(parents)
}

fn object_of(kind: &str, choices: &mut ByteChoices) -> Tree {
    let Type::Object(object) = body_type(kind) else { return mapping(choices, |choices| any_value(choices, 1)) };
    fields(object, choices, 0, &["labels"])
}

/// A value of a type; sometimes `null`, and rarely a value of another type.
fn value(ty: &Type, choices: &mut ByteChoices, depth: usize) -> Tree {
    if choices.rarely(12) {
        return Tree::Null;
    }
    if choices.with_mistakes && choices.rarely(40) {
        return any_value(choices, 2);
    }
    match ty {
        Type::Text(format) => Tree::text(choices.one(texts(*format))),
        Type::Integer { min, max } => {
            let number = (min + i64::try_from(choices.pick(3)).unwrap()).min(*max);
            Tree::One(number.to_string())
        }
        Type::Bool => Tree::One(choices.one(&["true", "false"]).to_owned()),
        Type::OneOf(words) => Tree::text(choices.one(words)),
        Type::Scalar => scalar(choices),
        Type::Reference(_) => Tree::text(choices.one(&NAMES)),
        Type::Secret => Tree::Map(vec![("secret".into(), Tree::text(choices.one(&NAMES)))]),
        Type::List(item) => members(choices, |choices| value(item, choices, depth + 1)),
        Type::ReplacedList(item) => {
            let members = (0..choices.pick(3)).map(|_| value(item, choices, depth + 1));
            Tree::List(members.collect())
        }
        Type::Keyed { key, item } => keyed(key, item, choices, depth),
        Type::Map(item) => mapping(choices, |choices| value(item, choices, depth + 1)),
        Type::Object(object) => fields(object, choices, depth, &[]),
        Type::Any => any_value(choices, depth),
    }
}

fn texts(format: TextFormat) -> &'static [&'static str] {
    match format {
        TextFormat::Any => &["a", "b", "c"],
        TextFormat::Address | TextFormat::AddressOrDhcp => &["10.0.0.1", "10.0.0.2", "fd00::1"],
        TextFormat::Cidr => &["10.0.0.0/24", "10.0.1.0/24", "fd00::/64"],
        TextFormat::Mac => &["52:54:00:12:34:56", "52:54:00:12:34:57"],
        TextFormat::Size | TextFormat::Bytes => &["10g", "20g", "30g"],
        TextFormat::HostName => &["web1", "web2"],
        TextFormat::Domain => &["example.org", "example.net"],
        TextFormat::Uuid => &["8e3d3c04-7b1f-4bd4-a9a4-5b8b2d3c1a00", "8e3d3c04-7b1f-4bd4-a9a4-5b8b2d3c1a01"],
        TextFormat::AbsolutePath => &["/a", "/b"],
        TextFormat::Permissions => &["0644", "0600"],
        TextFormat::CpuSet => &["1-2", "3"],
    }
}

fn scalar(choices: &mut ByteChoices) -> Tree {
    match choices.pick(6) {
        0..3 => Tree::text(choices.one(&NAMES)),
        3 => Tree::One(choices.one(&["1", "2"]).to_owned()),
        4 => Tree::One("true".into()),
        // Texts that look like a number or like a removal.
        _ => Tree::text(choices.one(&["1", "!a"])),
    }
}

/// A value of any type.
fn any_value(choices: &mut ByteChoices, depth: usize) -> Tree {
    match choices.pick(if depth < 4 { 7 } else { 3 }) {
        0..2 => scalar(choices),
        2 => Tree::Null,
        3 => members(choices, scalar),
        4 => {
            let items = (0..choices.pick(3)).map(|_| any_value(choices, depth + 1));
            Tree::List(items.collect())
        }
        _ => mapping(choices, |choices| any_value(choices, depth + 1)),
    }
}

/// Some of a few known keys, and removals of them.
fn fields(object: &Object, choices: &mut ByteChoices, depth: usize, left_out: &[&str]) -> Tree {
    let all: Vec<&'static Field> = object.fields().filter(|field| !left_out.contains(&field.name)).collect();
    let few: Vec<&Field> = (0..4).map(|n| all[(choices.salt + n * 7 + depth) % all.len()]).collect();
    let mut entries: Vec<(String, Tree)> = Vec::new();
    for _ in 0..choices.pick(5) {
        let field = choices.one(&few);
        let removes = choices.rarely(8);
        let key = if removes { format!("!{}", field.name) } else { field.name.to_owned() };
        let value = if removes { Tree::Null } else { value(&field.ty, choices, depth + 1) };
        if entries.iter().all(|(there, _)| *there != key) {
            entries.push((key, value));
        }
    }
    Tree::Map(entries)
}

fn mapping(choices: &mut ByteChoices, mut value: impl FnMut(&mut ByteChoices) -> Tree) -> Tree {
    let mut entries: Vec<(String, Tree)> = Vec::new();
    for _ in 0..choices.pick(4) {
        let name = choices.one(&NAMES);
        let (key, value) =
            if choices.rarely(6) { (format!("!{name}"), Tree::Null) } else { (name.to_owned(), value(choices)) };
        if entries.iter().all(|(there, _)| *there != key) {
            entries.push((key, value));
        }
    }
    Tree::Map(entries)
}

/// Single values, and removals of some or all.
fn members(choices: &mut ByteChoices, mut value: impl FnMut(&mut ByteChoices) -> Tree) -> Tree {
    let mut items = Vec::new();
    for _ in 0..choices.pick(4) {
        let value = value(choices);
        items.push(match (choices.pick(8), value.single()) {
            (6, Some(text)) => Tree::text(&format!("!{text}")),
            (7, _) => Tree::text("!*"),
            _ => value,
        });
    }
    Tree::List(items)
}

fn keyed(key: &str, item: &Object, choices: &mut ByteChoices, depth: usize) -> Tree {
    let of_key = item.fields().find(|field| field.name == key).map(|field| field.ty);
    let names: Vec<String> = match of_key {
        Some(Type::Text(format)) => texts(format).iter().map(|&text| text.to_owned()).collect(),
        _ => NAMES.map(str::to_owned).to_vec(),
    };
    let mut items: Vec<Tree> = Vec::new();
    for _ in 0..choices.pick(4) {
        let name = names[choices.pick(names.len())].clone();
        let (removes, mut fields) = (choices.pick(10), fields(item, choices, depth + 1, &[key]));
        let set_key = |fields: &mut Tree, name: &str| {
            if let Tree::Map(entries) = fields {
                entries.retain(|(there, _)| there != &format!("!{key}"));
                entries.insert(0, (key.to_owned(), Tree::text(name)));
            }
        };
        let member = match removes {
            8 => Tree::text(&format!("!{name}")),
            9 => {
                set_key(&mut fields, &format!("!{name}"));
                fields
            }
            _ => {
                set_key(&mut fields, &name);
                fields
            }
        };
        let called = |tree: &Tree| tree.get(key).and_then(Tree::single).or_else(|| tree.single());
        // Two members of one name are reported, and their result is undefined.
        if items.iter().all(|there| called(there) != called(&member)) {
            items.push(member);
        }
    }
    Tree::List(items)
}

impl Layer {
    /// The document as YAML, one value for each line.
    fn text(&self) -> String {
        let mut text = format!("kind: {}\nname: {}\n", self.kind, self.name);
        if self.source > 0 {
            text.push_str("overlay: true\n");
        }
        if let Some(extends) = &self.extends {
            text.push_str(&format!("extends: [{}]\n", extends.join(", ")));
        }
        text.push_str("spec:");
        self.body.write(1, &mut text);
        text
    }
}

impl GeneratedSite {
    /// Files of the design by source, with documents in the given order.
    pub(crate) fn files(&self, order: &[usize], files: usize) -> Vec<DesignSource> {
        let mut bundles: Vec<DesignSource> =
            SOURCES.iter().map(|name| DesignSource { name: (*name).to_owned(), files: Vec::new() }).collect();
        for (source, bundle) in bundles.iter_mut().enumerate() {
            for file in 0..files {
                let of_file = order.iter().filter(|&&at| at % files == file && self.layers[at].source == source);
                let texts: Vec<String> = of_file.map(|&at| self.layers[at].text()).collect();
                if !texts.is_empty() {
                    bundle.files.push(FileText::new(format!("{}/{file}.yaml", SOURCES[source]), texts.join("---\n")));
                }
            }
        }
        if self.layers.iter().any(|layer| layer.kind == "Node") {
            bundles[0].files.push(FileText::new("site/environments/prod.yaml", ENVIRONMENT));
        }
        bundles
    }

    /// Makes the documents of the first source extend an empty base document: configuration items that inherit nothing
    /// would be kept verbatim.
    pub(crate) fn with_a_base(mut self) -> GeneratedSite {
        for layer in self.layers.iter_mut().filter(|layer| layer.source == 0) {
            layer.extends.get_or_insert_default().insert(0, "base".into());
        }
        let base = Layer {
            source: 0,
            kind: self.layers[0].kind,
            name: "base".into(),
            extends: None,
            body: Tree::Map(Vec::new()),
        };
        self.layers.push(base);
        self
    }

    pub(crate) fn compile(&self) -> CheckedDesign {
        let order: Vec<usize> = (0..self.layers.len()).collect();
        Design::compile(self.files(&order, 1), &CompileOptions::default())
    }

    /// All subjects by kind and name.
    pub(crate) fn subjects(&self) -> Vec<(&'static str, &str)> {
        let mut subjects: Vec<(&str, &str)> = self.layers.iter().map(|layer| (layer.kind, &*layer.name)).collect();
        subjects.dedup();
        subjects
    }
}
