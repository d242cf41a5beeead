//! Finds exported resources and queries of PuppetDB in manifests. A node that evaluates one of them fails its run; modules often
//! have some that no node evaluates, so they are warnings.

/// Functions of PuppetDB, and of modules that query it.
const QUERIES: [&str; 5] = ["puppetdb_query", "query_nodes", "query_facts", "query_resources", "pdbquery"];

/// Lines of a manifest that need a PuppetDB, with what they use.
pub(super) fn scan(manifest: &str) -> Vec<(u64, &'static str)> {
    let code = without_comments_and_texts(manifest);
    let mut found = Vec::new();
    for (number, line) in (1..).zip(code.lines()) {
        if line.contains("@@") {
            found.push((number, "an exported resource (`@@`)"));
        }
        if line.contains("<<|") {
            found.push((number, "a collector of exported resources (`<<| |>>`)"));
        }
        let words = || line.split(|char: char| !(char.is_ascii_alphanumeric() || matches!(char, '_' | ':' | '$')));
        if QUERIES.iter().any(|name| words().any(|word| word == *name)) {
            found.push((number, "a query of PuppetDB"));
        }
    }
    found
}

/// The manifest with blanks in place of comments and quoted texts; lines stay where they are.
fn without_comments_and_texts(manifest: &str) -> String {
    #[derive(Clone, Copy)]
    enum Part {
        Code,
        Line,
        Block,
        Text(char),
    }
    let (mut part, mut code) = (Part::Code, String::with_capacity(manifest.len()));
    let mut chars = manifest.chars().peekable();
    while let Some(char) = chars.next() {
        let next = chars.peek().copied();
        part = match (part, char) {
            (Part::Code, '#') => Part::Line,
            (Part::Code, '/') if next == Some('*') => Part::Block,
            (Part::Code, '\'' | '"') => Part::Text(char),
            (Part::Line, '\n') => Part::Code,
            (Part::Block, '*') if next == Some('/') => {
                chars.next();
                Part::Code
            }
            (Part::Text(_), '\\') => {
                // An escaped line end still counts as a line.
                code.extend(chars.next().filter(|escaped| *escaped == '\n'));
                part
            }
            (Part::Text(quote), _) if char == quote => Part::Code,
            (Part::Code | Part::Line | Part::Block | Part::Text(_), _) => part,
        };
        match part {
            Part::Code => code.push(char),
            Part::Line | Part::Block | Part::Text(_) => code.push(if char == '\n' { '\n' } else { ' ' }),
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_of_puppetdb_are_found_outside_of_comments_and_texts() {
        let manifest = "\
# @@file is a comment
class a {
  /* File <<| |>>
     puppetdb_query('x') */
  notify { 'it\\'s @@ here': message => \"<<| |>> ${x}\" }
  @@file { '/x': }
  File <<| tag == 'a' |>> { mode => '0644' }
  $nodes = puppetdb_query('nodes { }')
  $puppetdb_query = 1
  File <| |>
  @file { '/y': }
}
";
        let found: Vec<u64> = scan(manifest).into_iter().map(|(line, _)| line).collect();
        assert_eq!(found, [6, 7, 8]);
    }
}
