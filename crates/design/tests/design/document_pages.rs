//! Generated reference of documents in the book, and JSON Schemas, from the types of the kinds.

use std::collections::BTreeMap;
use std::fmt::Write;

use muster_design::kinds::Kind;
use muster_design::types::{Field, Format, Object, Type, json_schema};

use crate::generated::compare;

#[test]
fn the_reference_and_the_schemas_of_documents_are_the_real_ones() {
    let mut files = BTreeMap::from([("docs/src/documents.md".to_owned(), reference())]);
    for kind in Kind::ALL {
        let schema = serde_json::to_string_pretty(&json_schema(*kind)).unwrap() + "\n";
        files.insert(format!("docs/schemas/{kind}.schema.json"), schema);
    }
    compare("UPDATE_DOCUMENTS", &files, &["docs/schemas"]);
}

const HEAD: &str = "\
# Documents

A document says something about one thing: a network, a rack, a profile, a node. Documents stand in any number of YAML files,
many to a file, with a line `---` between two. Their order, and how they are spread over files, does not matter. This page is made
from the code, and has all kinds and all fields; [Designs](design.md) says how they belong together.

Every document looks like this:

```yaml
kind: Network
name: mgmt
labels: {tier: inner}
extends: [plain]
spec:
  cidr: 10.1.0.0/24
```

| key | needed | meaning |
|---|---|---|
| `kind` | yes | what it describes: one of those below, or a kind of your own |
| `name` | yes | its name, unique among documents of the kind: 1 to 128 of A-Z, a-z, 0-9 and `- _ . + : @ /`, beginning with a letter or digit |
| `labels` | no | words to select documents by: text to text |
| `extends` | no | the documents whose values it begins with: see [Inheritance](inheritance.md) |
| `overlay` | no | `true`: it is meant to be laid over the document of the same kind and name in an earlier source |
| `spec` | no | what it says |

No field is needed in a document, since it may be inherited: what must be there in the end is checked on what is in effect. How a
field is inherited follows from its type. In the tables below, a field in a mapping is written with a dot before it, `<name>` is a
name of your own, and `[name]` is a member of a list that is told from the others by its `name`.

The same as JSON Schemas, for editors, is in `docs/schemas`; `muster design schema --all DIR` writes them.
";

const ITEMS: &str = "
## Kinds of your own

A kind with a `/` in its name, such as `acme/Widget` or `promenade/Docker/v1`, is a *configuration item*. So is any other word for
which there is a document of kind `Schema` with that name; then the items are checked against it. Muster keeps, versions, compares and
serves them; what they mean is their authors' business. They are inherited like everything else, by what their values look like.
";

fn reference() -> String {
    let mut page = HEAD.to_owned();
    for kind in Kind::ALL {
        write!(page, "\n## {kind}\n\n{}", kind.about()).unwrap();
        match (kind, kind.parents()) {
            (Kind::Schema, _) => {
                page.push_str(" Its `spec` is the schema.\n");
                continue;
            }
            (Kind::Node, parent) => {
                write!(page, " It extends documents of kind {parent}, has all of their fields, and these besides:")
                    .unwrap();
            }
            (_, _) => {}
        }
        page.push_str("\n\n| field | type | meaning |\n|---|---|---|\n");
        let Type::Object(object) = kind.body() else { panic!("{kind} has no fields") };
        let inherited: Vec<&str> = match (kind, Kind::HostProfile.body()) {
            (Kind::Node, Type::Object(profile)) => profile.fields().map(|field| field.name).collect(),
            (_, _) => vec!["labels"],
        };
        for field in object.fields().filter(|field| !inherited.contains(&field.name)) {
            rows(field, "", &mut page);
        }
    }
    page + ITEMS
}

/// Rows of a field and the fields in it.
fn rows(field: &Field, above: &str, page: &mut String) {
    let path = format!("{above}{}", field.name);
    writeln!(page, "| `{path}` | {} | {} |", words(&field.ty), field.about.replace('|', "\\|")).unwrap();
    let (item, path) = inside(&field.ty, path);
    let key = if let Type::Keyed { key, .. } = field.ty { Some(key) } else { None };
    if let Some(object) = item {
        // The path already contains the key of a member.
        for field in object.fields().filter(|field| Some(field.name) != key) {
            rows(field, &format!("{path}."), page);
        }
        if object.open {
            writeln!(page, "| `{path}.<name>` | anything | Values of your own. |").unwrap();
        }
    }
}

/// The mapping with known keys in a value, and its path.
fn inside(ty: &Type, path: String) -> (Option<&'static Object>, String) {
    match ty {
        Type::Object(object) => (Some(object), path),
        Type::Keyed { key, item } => (Some(item), format!("{path}[{key}]")),
        Type::Map(item) => inside(item, format!("{path}.<name>")),
        Type::Whole(item) => inside(item, format!("{path}[]")),
        Type::List(_)
        | Type::Any
        | Type::Text(_)
        | Type::Integer { .. }
        | Type::Bool
        | Type::OneOf(_)
        | Type::Scalar
        | Type::Reference(_)
        | Type::Secret => (None, path),
    }
}

fn words(ty: &Type) -> String {
    match ty {
        Type::Text(format) => of_form(*format).to_owned(),
        Type::Integer { min, max } if *max >= i64::from(u32::MAX) => format!("integer from {min}"),
        Type::Integer { min, max } => format!("integer, {min} to {max}"),
        Type::Bool => "`true` or `false`".into(),
        Type::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Type::Scalar => "text, number or boolean".into(),
        Type::Reference(kind) => format!("name of a [{kind}](#{})", kind.word().to_lowercase()),
        Type::Secret => "`{secret: NAME}`".into(),
        Type::List(item) => format!("list: {}", words(item)),
        Type::Whole(item) => format!("list, as a whole: {}", words(item)),
        Type::Keyed { key, .. } => format!("list by `{key}`"),
        Type::Map(Type::Object(_)) => "mapping by name".into(),
        Type::Map(item) => format!("mapping: {}", words(item)),
        Type::Object(_) => "mapping".into(),
        Type::Any => "anything".into(),
    }
}

fn of_form(format: Format) -> &'static str {
    match format {
        Format::Any => "text",
        Format::Address => "IP address",
        Format::AddressOrDhcp => "IP address, or `dhcp`",
        Format::Cidr => "network: `10.1.0.0/24`",
        Format::Mac => "hardware address: `52:54:00:12:34:56`",
        Format::Size => "size: `20g`, `512mi`, `30%`, `>20g`",
        Format::Bytes => "size in bytes: `480g`, `2ti`",
        Format::HostName => "host name",
        Format::Domain => "domain",
        Format::Uuid => "UUID",
        Format::AbsolutePath => "absolute path",
        Format::Permissions => "file mode: `'0644'`",
        Format::CpuSet => "processors: `'2,4-7'`",
    }
}
