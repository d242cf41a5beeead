//! Builds trees from the parser's events, within the limits of the file.
//!
//! Open collections are on a vector, not on the call stack. Costs are charged before a value is added, so the builder
//! never exceeds a limit.

use std::collections::HashMap;
use std::sync::Arc;

use saphyr_parser::{Event, ScalarStyle, Tag};

use super::limits::{Limits, TreeBudget};
use super::scalar::Scalar;
use super::text_cache::TextCache;
use super::tree::{Value, YamlEntry, YamlKey, YamlMap, YamlNode};
use crate::file_text::{FileText, Position, Span};
use crate::finding::{Code, Finding, FindingCollector, quote};
use crate::{FastMap, yaml};

/// Parsing of the document stopped; the reason was reported.
#[derive(Debug)]
pub(super) struct ParseAborted;

pub(super) struct Builder<'b, 'r> {
    source: &'b FileText,
    limits: &'b Limits,
    budget: &'b TreeBudget,
    report: &'b mut FindingCollector<'r>,
    documents: Vec<YamlNode>,
    open: Vec<OpenCollection>,
    /// Members of all open lists, those of the innermost list last. `entries` does the same for mappings. At the end of
    /// a collection its members move into memory of their exact size.
    items: Vec<YamlNode>,
    entries: Vec<YamlEntry>,
    /// `None` while the anchored value is still being read.
    anchors: HashMap<usize, Option<Subtree>>,
    texts: TextCache,
    tree_bytes: usize,
    alias_bytes: usize,
    /// Memory taken from the budget in bytes. At least the memory of the trees.
    taken: usize,
    is_exhausted: bool,
}

/// A finished value, with the cost of a copy.
#[derive(Clone)]
struct Subtree {
    node: YamlNode,
    bytes: usize,
    height: usize,
}

/// A list or mapping whose end was not read yet.
struct OpenCollection {
    content: OpenContent,
    span: Span,
    anchor: usize,
    bytes: usize,
    height: usize,
}

/// Kind of an open collection. Its members are in the builder, from index `first` on.
enum OpenContent {
    Seq { first: usize },
    Map { first: usize, has_refused: bool, index: KeyIndex, slot: NextElement },
}

/// Next element that a mapping expects.
enum NextElement {
    Key,
    Value(YamlKey),
    /// The value of a refused key: parsed and dropped.
    Skipped,
}

impl<'b, 'r> Builder<'b, 'r> {
    pub(super) fn new(
        source: &'b FileText,
        limits: &'b Limits,
        budget: &'b TreeBudget,
        report: &'b mut FindingCollector<'r>,
    ) -> Self {
        Builder {
            source,
            limits,
            budget,
            report,
            documents: Vec::new(),
            open: Vec::new(),
            items: Vec::new(),
            entries: Vec::new(),
            anchors: HashMap::new(),
            texts: TextCache::default(),
            tree_bytes: 0,
            alias_bytes: 0,
            taken: 0,
            is_exhausted: false,
        }
    }

    /// Documents that were parsed completely.
    pub(super) fn into_documents(self) -> Vec<YamlNode> {
        self.budget.give_back(self.taken.saturating_sub(self.tree_bytes));
        self.documents
    }

    /// Drops the document in progress.
    pub(super) fn abandon_document(&mut self) {
        self.open.clear();
        self.items.clear();
        self.entries.clear();
    }

    /// Reports whether the file has used up its memory, so that parsing must stop. A file that has used up only its
    /// share for aliases can still be parsed: documents without aliases are not affected.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    pub(super) fn syntax_error(&mut self, at: Position, complaint: &str) {
        yaml::report_syntax_error(self.source, self.report, at, complaint);
    }

    pub(super) fn handle(&mut self, event: Event<'_>, span: Span) -> Result<(), ParseAborted> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                // Anchors are local to their document. The parser would resolve an alias to the previous document.
                self.anchors.clear();
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                self.scalar(&text, style, anchor, tag.as_deref(), span)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                self.begin(OpenContent::Seq { first: self.items.len() }, anchor, span)
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                let first = self.entries.len();
                let content =
                    OpenContent::Map { first, has_refused: false, index: KeyIndex::default(), slot: NextElement::Key };
                self.begin(content, anchor, span)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Alias(anchor) => self.alias(anchor, span),
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        span: Span,
    ) -> Result<(), ParseAborted> {
        // For an empty value the parser gives the span of the next token.
        let plain = style == ScalarStyle::Plain;
        let span = if text.is_empty() && plain { Span::at(span.file, span.start) } else { span };
        let bytes = size_of::<YamlEntry>() + text.len();
        self.charge(bytes, span)?;
        // Half of all scalars are keys.
        if anchor == 0
            && let Some(OpenCollection { content: OpenContent::Map { slot: NextElement::Key, .. }, .. }) =
                self.open.last()
        {
            self.key(text, plain, span, bytes);
            return Ok(());
        }
        // The tag was reported already. It only selects the type here, so that the value is not reported again.
        let scalar = match (tag, plain) {
            (Some(tag), _) if tag.is_yaml_core_schema() && tag.suffix != "str" => Scalar::plain(self.texts.share(text)),
            (None, true) => Scalar::plain(self.texts.share(text)),
            (Some(_), _) | (None, false) => Scalar::quoted(self.texts.share(text)),
        };
        let node = YamlNode::new(Value::Scalar(scalar), span);
        self.finished(Subtree { node, bytes, height: 1 }, anchor, plain)
    }

    /// Adds a text as the next key of the innermost mapping.
    fn key(&mut self, text: &str, plain: bool, span: Span, bytes: usize) {
        let Some(open) = self.open.last_mut() else { return };
        open.grow(bytes, 1, span);
        if let OpenContent::Map { first, has_refused, index, slot } = &mut open.content {
            let entries = self.entries.get(*first..).unwrap_or_default();
            *slot = match accept_key(text, plain, span, entries, index, &mut self.texts, self.report) {
                KeyResult::Accepted(key) => NextElement::Value(key),
                KeyResult::Duplicate => NextElement::Skipped,
                KeyResult::Invalid => {
                    *has_refused = true;
                    NextElement::Skipped
                }
            };
        }
    }

    fn begin(&mut self, content: OpenContent, anchor: usize, span: Span) -> Result<(), ParseAborted> {
        self.check_depth(1, span)?;
        self.charge(size_of::<YamlEntry>(), span)?;
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        self.open.push(OpenCollection { content, span, anchor, bytes: size_of::<YamlEntry>(), height: 1 });
        Ok(())
    }

    fn end(&mut self, span: Span) -> Result<(), ParseAborted> {
        let Some(mut open) = self.open.pop() else { return Ok(()) };
        // A flow collection ends at its bracket. A block collection ends with its last member, but the parser reports
        // the end at the next token.
        if span.start != span.end {
            open.span.end = span.end;
        }
        let value = match open.content {
            OpenContent::Seq { first } => Value::Seq(self.items.drain(first..).collect()),
            OpenContent::Map { first, has_refused, .. } => {
                Value::Map(YamlMap { entries: self.entries.drain(first..).collect(), has_refused })
            }
        };
        let node = YamlNode::new(value, open.span);
        self.finished(Subtree { node, bytes: open.bytes, height: open.height }, open.anchor, false)
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<(), ParseAborted> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            let finding = Code::UnknownAlias.finding("the alias names an anchor of another document");
            self.report.add(span, finding.help("anchors count within their document: write the value out here"));
            return Err(ParseAborted);
        };
        let Some(subtree) = anchored else {
            let finding = Code::UnknownAlias.finding("the alias is inside of the value that it refers to");
            self.report.add(span, finding.help("a value cannot contain itself"));
            return Err(ParseAborted);
        };
        let (bytes, height) = (subtree.bytes, subtree.height);
        // Check the limits before the copy is made.
        self.charge_alias(bytes, span)?;
        self.check_depth(height, span)?;
        let Some(Some(mut subtree)) = self.anchors.get(&anchor).cloned() else { return Err(ParseAborted) };
        subtree.node.span = span;
        self.finished(subtree, 0, false)
    }

    /// Adds a finished value to the innermost collection or to the documents.
    fn finished(&mut self, subtree: Subtree, anchor: usize, plain: bool) -> Result<(), ParseAborted> {
        if anchor != 0 {
            // The copy that is kept for aliases costs memory as well.
            self.charge_alias(subtree.bytes, subtree.node.span)?;
            self.anchors.insert(anchor, Some(subtree.clone()));
        }
        let Subtree { node, bytes, height } = subtree;
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        open.grow(bytes, height, node.span);
        match &mut open.content {
            OpenContent::Seq { .. } => self.items.push(node),
            OpenContent::Map { has_refused, slot, .. } => match std::mem::replace(slot, NextElement::Key) {
                NextElement::Key => match &node.value {
                    // An alias, or a key that has an anchor itself.
                    Value::Scalar(scalar) => self.key(scalar.text(), plain, node.span, 0),
                    Value::Seq(_) | Value::Map(_) => {
                        (*has_refused, *slot) = (true, NextElement::Skipped);
                        let finding = Code::KeyNotText.finding("a key must be a text, not a list or a mapping");
                        self.report.add(node.span, finding.help("a text that begins with { or [ must be in quotes"));
                    }
                },
                NextElement::Value(key) => self.entries.push(YamlEntry { key, value: node }),
                NextElement::Skipped => {}
            },
        }
        Ok(())
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, span: Span) {
        let Some(tag) = tag else { return };
        let core = tag.is_yaml_core_schema();
        let written = if core { format!("!!{}", tag.suffix) } else { format!("{}{}", tag.handle, tag.suffix) };
        let help = if core && tag.suffix == "str" {
            "to make it a text, put it in quotes"
        } else if core {
            "leave the tag out: a value is what it looks like"
        } else {
            "a text that begins with ! must be in quotes, '!name'"
        };
        let message = format!("the YAML tag {} is not supported", quote(&written));
        self.report.add(span, Code::Tag.finding(message).help(help));
    }

    fn check_depth(&mut self, height: usize, span: Span) -> Result<(), ParseAborted> {
        let limit = self.limits.depth;
        if self.open.len() + height <= limit {
            return Ok(());
        }
        self.report.add(span, Code::TooDeep.finding(format!("values are nested more than {limit} deep")));
        Err(ParseAborted)
    }

    fn charge(&mut self, bytes: usize, span: Span) -> Result<(), ParseAborted> {
        self.tree_bytes = self.tree_bytes.saturating_add(bytes);
        if self.tree_bytes > self.limits.tree_bytes {
            let message = format!("the content of the file takes more than {} bytes of memory", self.limits.tree_bytes);
            return self.exhausted(span, Code::TooLarge.finding(message).help("split it over several files"));
        }
        while self.taken < self.tree_bytes {
            let Some(part) = self.budget.take_part() else {
                let message =
                    format!("the files of the design take more than {} bytes of memory", TreeBudget::OF_A_DESIGN);
                let finding = Code::TooLarge.finding(message);
                return self
                    .exhausted(span, finding.help("is it the right directory? The rest of this file is not read"));
            };
            self.taken += part;
        }
        Ok(())
    }

    fn exhausted(&mut self, span: Span, finding: Finding) -> Result<(), ParseAborted> {
        self.is_exhausted = true;
        self.report.add(span, finding);
        Err(ParseAborted)
    }

    fn charge_alias(&mut self, bytes: usize, span: Span) -> Result<(), ParseAborted> {
        self.alias_bytes = self.alias_bytes.saturating_add(bytes);
        if self.alias_bytes <= self.limits.alias_bytes {
            return self.charge(bytes, span);
        }
        let message = format!("the aliases of this file expand to more than {} bytes", self.limits.alias_bytes);
        self.report.add(span, Code::AliasExpansion.finding(message).help("write less with anchors and aliases"));
        Err(ParseAborted)
    }
}

impl OpenCollection {
    /// Adds the cost of a member.
    fn grow(&mut self, bytes: usize, height: usize, span: Span) {
        self.bytes += bytes;
        self.height = self.height.max(height + 1);
        self.span.end = self.span.end.max(span.end);
    }
}

/// Result of reading a key.
enum KeyResult {
    Accepted(YamlKey),
    /// The first one counts.
    Duplicate,
    /// Its entry is missing in the mapping.
    Invalid,
}

/// Checks the next key of a mapping, and reports an invalid or duplicate one.
fn accept_key(
    text: &str,
    plain: bool,
    span: Span,
    entries: &[YamlEntry],
    index: &mut KeyIndex,
    texts: &mut TextCache,
    report: &mut FindingCollector<'_>,
) -> KeyResult {
    if plain && text.is_empty() {
        report.add(span, Code::KeyNotText.finding("the key is empty").expected("expected a key"));
        return KeyResult::Invalid;
    }
    if plain && text == "<<" {
        let finding = Code::MergeKey
            .finding("the merge key << is not supported")
            .help("it is not part of YAML 1.2; write the values out, or use an alias for the whole mapping");
        report.add(span, finding);
        return KeyResult::Invalid;
    }
    if let Some(first) = index.find(entries, text) {
        let finding = Code::DuplicateKey
            .finding(format!("the key {} is defined twice", quote(text)))
            .help("remove one of the two");
        report.add_with_note(span, finding, "the first one is here", first.key.span);
        return KeyResult::Duplicate;
    }
    KeyResult::Accepted(YamlKey { text: texts.share(text), span })
}

/// Finds an entry by its key while a mapping is being read. Short mappings are scanned. Long ones get a table, because
/// scans would take quadratic time.
#[derive(Default)]
struct KeyIndex {
    table: FastMap<Arc<str>, usize>,
}

impl KeyIndex {
    const SCAN_LIMIT: usize = 16;

    fn find<'e>(&mut self, entries: &'e [YamlEntry], key: &str) -> Option<&'e YamlEntry> {
        if entries.len() <= Self::SCAN_LIMIT {
            return entries.iter().find(|entry| &*entry.key.text == key);
        }
        let known = self.table.len();
        self.table.extend(entries.iter().enumerate().skip(known).map(|(at, entry)| (entry.key.text.clone(), at)));
        self.table.get(key).and_then(|&at| entries.get(at))
    }
}
