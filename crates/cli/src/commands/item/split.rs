//! A file of documents, cut into them; each keeps its text as it was written.

use serde::Deserialize;

use crate::failure::Failure;

/// One document of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) text: String,
    /// The file that it stands in, and the line of the file that is its first.
    pub(super) file: String,
    pub(super) line: u32,
}

/// Cuts a file where YAML says that one document ends: at lines that begin with `---` or `...`, whatever stands around
/// them.
pub(super) fn documents(file: &str, text: &str) -> Result<Vec<Written>, Failure> {
    let mut documents = Vec::new();
    for (line, text) in pieces(text) {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            continue;
        }
        documents.push(read(file, line, text)?);
    }
    if documents.is_empty() {
        return Err(Failure::failed(anyhow::anyhow!("{file} holds no document")));
    }
    Ok(documents)
}

/// The texts between the marks, each with the number of its first line.
fn pieces(text: &str) -> Vec<(u32, String)> {
    let is_mark = |line: &str| {
        let rest = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r']))
    };
    let mut pieces = vec![(1, String::new())];
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        if is_mark(line.trim_end_matches('\n')) {
            // What follows the mark on its line belongs to the document: `--- # the networks`, `--- {kind: …}`.
            let rest = line.get(3..).filter(|_| line.starts_with("---")).unwrap_or_default();
            let rest = rest.trim_start();
            pieces.push((if rest.is_empty() { number + 1 } else { number }, rest.to_owned()));
        } else if let Some((_, piece)) = pieces.last_mut() {
            piece.push_str(line);
        }
    }
    pieces
}

fn read(file: &str, line: u32, text: String) -> Result<Written, Failure> {
    #[derive(Deserialize)]
    struct Envelope {
        kind: String,
        name: String,
    }
    let envelope: Result<Envelope, _> = serde_saphyr::from_str(&text);
    match envelope {
        Ok(Envelope { kind, name }) => Ok(Written { kind, name, text, file: file.to_owned(), line }),
        Err(error) => {
            let what = format!("the document at line {line} of {file} has no kind and name that can be read");
            let failure = Failure::failed(anyhow::Error::msg(error.to_string()).context(what));
            Err(failure
                .hint("a document begins with `kind: KIND` and `name: NAME`; `muster design check DIR` says more"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_document_keeps_its_text() {
        let text =
            "# two\n---\nkind: Network\nname: oob # comment\nspec: |\n  a\n  ---\n---\nkind: Rack\nname: r1\n...\n";
        let documents = documents("x.yaml", text).unwrap();
        let told: Vec<_> =
            documents.iter().map(|d| (d.line, d.kind.as_str(), d.name.as_str(), d.text.as_str())).collect();
        assert_eq!(
            told,
            [
                (3, "Network", "oob", "kind: Network\nname: oob # comment\nspec: |\n  a\n  ---\n"),
                (9, "Rack", "r1", "kind: Rack\nname: r1\n")
            ]
        );
    }

    #[test]
    fn a_document_without_a_name_says_where() {
        let failure = documents("x.yaml", "kind: Rack\nname: r1\n---\nkind: Rack\n").unwrap_err();
        assert_eq!(failure.error.to_string(), "the document at line 4 of x.yaml has no kind and name that can be read");
        assert!(documents("x.yaml", "# nothing\n---\n").is_err());
    }
}
