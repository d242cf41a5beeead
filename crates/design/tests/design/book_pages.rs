//! Generated files that are checked in: pages of the book about findings and documents, JSON Schemas, and the examples of
//! `muster design explain`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use muster_design::finding::Code;
use muster_design::kinds::Kind;
use muster_design::types::{Field, Object, TextFormat, Type, json_schema};

use crate::findings::{ELSEWHERE, Example, ROOT, example, printed};

const SUMMARY: &str = "docs/src/SUMMARY.md";

#[test]
fn finding_pages_are_current() {
    let examples: Vec<(Code, Option<String>)> = Code::ALL.iter().map(|code| (*code, section(*code))).collect();
    let mut files = BTreeMap::new();
    for (code, section) in &examples {
        files.insert(format!("docs/src/findings/{code}.md"), page(*code, section.as_deref()));
    }
    files.insert("docs/src/findings.md".into(), index());
    files.insert("crates/design/explanations/examples.md".into(), embedded(&examples));
    files.insert(SUMMARY.into(), summary(&fs::read_to_string(Path::new(ROOT).join(SUMMARY)).unwrap()));
    compare("UPDATE_FINDINGS", &files, &["docs/src/findings"]);
}

/// `M0103: A key is not one of those that are known there`
fn title(code: Code) -> String {
    format!("{code}: {}", code.meaning().trim_end_matches('.'))
}

fn page(code: Code, section: Option<&str>) -> String {
    let none = || {
        let (_, why, _) = ELSEWHERE.iter().find(|(elsewhere, ..)| *elsewhere == code).unwrap();
        format!("No file triggers this alone: {why}.")
    };
    let section = section.map_or_else(none, str::to_owned);
    format!("# {}\n\nSeverity: {}\n\n{}\n\n{section}\n", title(code), code.severity(), code.explanation().trim())
}

fn index() -> String {
    let mut page = "\
# Findings

Everything that Muster has to say about a design has a code. A code never changes its meaning, so it can be searched for, and
scripts may go by it. With an *error* among its findings, a design is not used; a *warning* does not keep it from being used.
`muster design explain CODE` shows the page of a code on the terminal.

"
    .to_owned();
    for group in Code::ALL.chunk_by(|a, b| a.as_str()[..3] == b.as_str()[..3]) {
        let about = match &group[0].as_str()[..3] {
            "M00" => "Files and YAML",
            "M01" => "Environment files, and what all documents share",
            "M10" => "Documents and inheritance",
            "M11" => "Networks and links",
            "M12" => "Nodes, interfaces and addresses",
            "M13" => "Storage",
            "M14" => "Hardware and platform",
            "M15" => "Boot actions",
            "M16" => "Out-of-band access and drivers",
            "M17" => "Configuration items",
            "M18" => "Drydock's documents",
            "M19" => "Rollout strategies",
            other => panic!("what are the codes that begin with {other} about?"),
        };
        write!(page, "## {about}\n\n| code | severity | meaning |\n|---|---|---|\n").unwrap();
        for code in group {
            writeln!(page, "| [{code}](findings/{code}.md) | {} | {} |", code.severity(), code.meaning()).unwrap();
        }
        page.push('\n');
    }
    page.trim_end().to_owned() + "\n"
}

fn embedded(examples: &[(Code, Option<String>)]) -> String {
    let sections = examples.iter().filter_map(|(code, section)| Some((code, section.as_ref()?)));
    sections.map(|(code, section)| format!("<!-- {code} -->\n{section}\n\n")).collect()
}

/// Table of contents, with one line for each code below the line of the findings.
fn summary(there: &str) -> String {
    const HEAD: &str = "- [Findings](findings.md)";
    assert!(there.contains(HEAD), "{SUMMARY} has no line {HEAD:?}");
    let mut lines: Vec<String> = Vec::new();
    for line in there.lines().filter(|line| !line.contains("](findings/")) {
        lines.push(line.to_owned());
        if line == HEAD {
            lines.extend(Code::ALL.iter().map(|code| format!("  - [{}](findings/{code}.md)", title(*code))));
        }
    }
    lines.join("\n") + "\n"
}

/// Text below the explanation of a code.
fn section(code: Code) -> Option<String> {
    let (bad, good) = (example(code, "bad")?, example(code, "good")?);
    let mut text = String::from("## Example\n\n");
    let shown: Vec<(String, String)> = files(&bad);
    shown.iter().for_each(|(_, file)| text.push_str(file));
    let directories: Vec<String> =
        bad.sources.iter().map(|source| source.path.to_str().unwrap().replace(&format!("{ROOT}/"), "")).collect();
    let print = printed(&bad.findings());
    write!(text, "```console\n$ muster design check {}\n{}\n```\n\n", directories.join(" "), print.trim_end()).unwrap();
    text.push_str("## A near miss\n\nHere nothing is found.");
    let others: Vec<(String, String)> = files(&good).into_iter().filter(|file| !shown.contains(file)).collect();
    let all = files(&good).len();
    if others.len() < all {
        text.push_str(if all - others.len() == 1 {
            " The other file is the same."
        } else {
            " The other files are the same."
        });
    }
    text.push_str("\n\n");
    others.iter().for_each(|(_, file)| text.push_str(file));
    Some(text.trim_end().to_owned())
}

/// Files of an example by name, with the text to show.
fn files(example: &Example) -> Vec<(String, String)> {
    let show = |(name, path): (String, std::path::PathBuf)| {
        let text = if let Ok(target) = fs::read_link(&path) {
            format!("`{name}` is a symbolic link to `{}`.\n\n", target.display())
        } else if path.is_dir() {
            format!("`{name}` is a directory.\n\n")
        } else {
            let bytes = fs::read(&path).unwrap();
            let language = if name.ends_with(".yaml") { "yaml" } else { "text" };
            format!("`{name}`:\n\n```{language}\n{}\n```\n\n", shortened(&String::from_utf8_lossy(&bytes)))
        };
        (name, text)
    };
    example.files().into_iter().map(show).collect()
}

/// Shortens the text of files that are large on purpose.
fn shortened(text: &str) -> String {
    const LINES: usize = 24;
    const CHARACTERS: usize = 160;
    let cut = |line: &str| match line.char_indices().nth(CHARACTERS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(cut).collect();
    if lines.len() <= LINES {
        return lines.join("\n");
    }
    format!("{}\n# … and {} more lines", lines[..LINES / 2].join("\n"), lines.len() - LINES / 2)
}

#[test]
fn document_pages_are_current() {
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
| `kind` | yes | one of the kinds below, or a kind of your own |
| `name` | yes | its name, unique among documents of the kind: 1 to 128 of A-Z, a-z, 0-9 and `- _ . + : @ /`, beginning with a letter or digit |
| `labels` | no | labels to select documents by: text to text |
| `extends` | no | the documents whose values it inherits: see [Inheritance](inheritance.md) |
| `overlay` | no | `true`: it overrides the document of the same kind and name in an earlier source |
| `spec` | no | its values |

All fields of a document are optional, because they may be inherited: required fields are checked in the effective document. The
type of a field defines how it is inherited. In the tables below, a field in a mapping is written with a dot before it, `<name>` is
a name of your own, and `[name]` is a member of a list that is identified by its `name`.

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
        Type::ReplacedList(item) => inside(item, format!("{path}[]")),
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
        Type::ReplacedList(item) => format!("list, as a whole: {}", words(item)),
        Type::Keyed { key, .. } => format!("list by `{key}`"),
        Type::Map(Type::Object(_)) => "mapping by name".into(),
        Type::Map(item) => format!("mapping: {}", words(item)),
        Type::Object(_) => "mapping".into(),
        Type::Any => "anything".into(),
    }
}

fn of_form(format: TextFormat) -> &'static str {
    match format {
        TextFormat::Any => "text",
        TextFormat::Address => "IP address",
        TextFormat::AddressOrDhcp => "IP address, or `dhcp`",
        TextFormat::Cidr => "network: `10.1.0.0/24`",
        TextFormat::Mac => "hardware address: `52:54:00:12:34:56`",
        TextFormat::Size => "size: `20g`, `512mi`, `30%`, `>20g`",
        TextFormat::Bytes => "size in bytes: `480g`, `2ti`",
        TextFormat::HostName => "host name",
        TextFormat::Domain => "domain",
        TextFormat::Uuid => "UUID",
        TextFormat::AbsolutePath => "absolute path",
        TextFormat::Permissions => "file mode: `'0644'`",
        TextFormat::CpuSet => "processors: `'2,4-7'`",
    }
}

/// Compares files, by paths from the root of the repository, with their expected content. Writes them if the variable
/// is set. The given directories must not contain any other files.
#[expect(clippy::disallowed_methods, reason = "a variable of the test run requests the update")]
pub(crate) fn compare(variable: &str, files: &BTreeMap<String, String>, directories: &[&str]) {
    let writes = std::env::var_os(variable).is_some();
    let mut stale = Vec::new();
    for (path, real) in files {
        let at = Path::new(ROOT).join(path);
        let is_same = fs::read_to_string(&at).is_ok_and(|there| there == *real);
        if !is_same && writes {
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(&at, real).unwrap();
        } else if !is_same {
            stale.push(path.clone());
        }
    }
    for directory in directories {
        for entry in fs::read_dir(Path::new(ROOT).join(directory)).into_iter().flatten() {
            let entry = entry.unwrap();
            let path = format!("{directory}/{}", entry.file_name().to_str().unwrap());
            if files.contains_key(&path) {
            } else if writes {
                fs::remove_file(entry.path()).unwrap();
            } else {
                stale.push(format!("{path}, which should not be there"));
            }
        }
    }
    assert!(
        stale.is_empty(),
        "these are not what the code says: run `make reference`, and read the difference: {stale:#?}"
    );
}
