//! Checks the book without building it: every page is in the summary, and every link between files of the repository works.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn summary_lists_every_page_once() {
    let pages = super::root().join("docs/src");
    let listed: Vec<PathBuf> =
        links(&read(&pages.join("SUMMARY.md"))).into_iter().map(|link| pages.join(without_anchor(&link))).collect();
    let listed_once: BTreeSet<PathBuf> = listed.iter().cloned().collect();
    let there: BTreeSet<PathBuf> =
        markdown_below(&pages).into_iter().filter(|page| !page.ends_with("SUMMARY.md")).collect();

    assert_eq!(listed.len(), listed_once.len(), "SUMMARY.md lists a page twice");
    assert_eq!(listed_once, there, "left: pages in SUMMARY.md; right: pages in docs/src");
}

#[test]
fn every_link_has_a_target() {
    let root = super::root();
    let mut pages = markdown_below(&root.join("docs/src"));
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)));

    let mut broken = Vec::new();
    for page in &pages {
        let folder = page.parent().expect("a file has a folder");
        for link in links(&read(page)) {
            if let Some(problem) = problem_of(&link, page, folder) {
                broken.push(format!("{}: ({link}): {problem}", page.strip_prefix(&root).unwrap_or(page).display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

fn problem_of(link: &str, page: &Path, folder: &Path) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { page.to_path_buf() } else { folder.join(path) };
    if !target.exists() {
        return Some("no such file".to_owned());
    }
    if !anchor.is_empty() && !anchors(&read(&target)).contains(anchor) {
        return Some("no such heading".to_owned());
    }
    None
}

#[test]
fn anchors_are_built_as_mdbook_does() {
    let text = "# The node's life\n\n## `muster up`, and `--once`\n\n```\n# no heading\n```\n## Keys\n## Keys\n<a id=\"old\"></a>\n";
    let expected = ["the-nodes-life", "muster-up-and---once", "keys", "keys-1", "old"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(expected));
}

#[test]
fn links_in_code_are_ignored() {
    assert_eq!(
        links("see [a](a.md) and ![b](b.svg)\n```\n[c](c.md)\n```\n`[d](d.md)` [e](e.md#f)\n[g]: g.md#h\n"),
        ["a.md", "b.svg", "e.md#f", "g.md#h"]
    );
}

/// Targets of all `[text](target)` and `[label]: target`.
fn links(markdown: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(markdown) {
        if let Some((_, target)) =
            line.split_once("]: ").filter(|(label, _)| line.starts_with('[') && !label.contains(']'))
        {
            found.push(target.split(' ').next().unwrap_or(target).to_owned());
        }
        // Every second part of a line that is split at backticks is code. The target of a link whose text is code starts
        // the part after it.
        for text in line.split('`').step_by(2) {
            for after in text.split("](").skip(1) {
                if let Some((target, _)) = after.split_once(')') {
                    found.push(target.to_owned());
                }
            }
        }
    }
    found
}

/// Anchors of headings, with a number for repeated ones, and explicit `id` attributes.
fn anchors(markdown: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(markdown) {
        if line.starts_with('#') {
            let kept = |c: char| match c {
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
                c if c.is_whitespace() => Some('-'),
                _punctuation => None,
            };
            let heading: String = line.trim_start_matches('#').trim().chars().filter_map(kept).collect();
            let mut anchor = heading.clone();
            for number in 1.. {
                if anchors.insert(anchor) {
                    break;
                }
                anchor = format!("{heading}-{number}");
            }
        }
        for id in line.split(" id=\"").skip(1) {
            anchors.extend(id.split_once('"').map(|(id, _)| id.to_owned()));
        }
    }
    anchors
}

/// Lines outside of fenced blocks.
fn prose(markdown: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    markdown.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn without_anchor(link: &str) -> &str {
    link.split('#').next().unwrap_or(link)
}

fn markdown_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            found.extend(markdown_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
