//! Parses files into documents, and checks each document on its own.

use std::collections::VecDeque;
use std::num::NonZero;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::spread;
use crate::documents::{self, Document, DocumentOrigin, ReaderOutput};
use crate::environment::Environment;
use crate::file_text::FileText;
use crate::finding::{FindingCollector, Findings};
use crate::types::{self, DocumentReference, TEXT_MAP, Type};
use crate::yaml::{self, Limits, TreeBudget};

/// Content of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadedFile {
    pub documents: Vec<Arc<Document>>,
    pub environments: Vec<Environment>,
    /// Documents that values refer to.
    pub references: Vec<DocumentReference>,
    pub findings: Findings,
}

/// A file and the number of its source.
#[derive(Clone, Debug)]
pub(super) struct DesignFile {
    pub text: FileText,
    pub source: usize,
}

/// Larger files are cut between documents, so that a single file uses all processors.
const CUT_BYTES: usize = 256 << 10;

/// Loads files on all processors. The result is in the order of the files.
pub(super) fn load(files: &[DesignFile]) -> Vec<LoadedFile> {
    let pieces: Vec<FilePiece<'_>> = files.iter().enumerate().flat_map(|(at, file)| cut(at, file)).collect();
    let mut loaded: Vec<LoadedFile> = files.iter().map(|_| LoadedFile::default()).collect();
    for (piece, made) in pieces.iter().zip(load_pieces(&pieces)) {
        let of_file = &mut loaded[piece.at];
        of_file.documents.extend(made.documents);
        of_file.environments.extend(made.environments);
        of_file.references.extend(made.references);
        let findings = std::mem::take(&mut of_file.findings);
        of_file.findings = findings.into_iter().chain(made.findings).collect::<Vec<_>>().into();
    }
    loaded
}

/// A file, or documents of a large one.
struct FilePiece<'f> {
    /// Index of the file.
    at: usize,
    file: &'f DesignFile,
    lines: Range<u32>,
    /// Share of the file's limits.
    limits: Limits,
}

fn cut(at: usize, file: &DesignFile) -> Vec<FilePiece<'_>> {
    let piece = |(lines, limits)| FilePiece { at, file, lines, limits };
    let size = file.text.text().len();
    if size <= CUT_BYTES || documents::is_environment_file(file.text.name()) {
        return vec![piece((file.text.all_lines(), Limits::DOCUMENTS))];
    }
    let ranges = yaml::document_ranges(&file.text, CUT_BYTES);
    let share = Limits::DOCUMENTS.share(ranges.len());
    ranges.into_iter().map(|lines| piece((lines, share))).collect()
}

/// Loads pieces from a shared queue.
fn load_pieces(pieces: &[FilePiece<'_>]) -> Vec<LoadedFile> {
    let budget = TreeBudget::new(TreeBudget::OF_A_DESIGN);
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(pieces.len().div_ceil(2));
    if threads <= 1 {
        return pieces.iter().map(|piece| load_piece(piece, &budget)).collect();
    }
    let queue: Mutex<VecDeque<usize>> = Mutex::new((0..pieces.len()).collect());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let workers = vec![(); threads];
    let mut done: Vec<(usize, LoadedFile)> = spread(&workers, |()| {
        std::iter::from_fn(next).map(|at| (at, load_piece(&pieces[at], &budget))).collect::<Vec<_>>()
    })
    .into_iter()
    .flatten()
    .collect();
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, loaded)| loaded).collect()
}

fn load_piece(piece: &FilePiece<'_>, budget: &TreeBudget) -> LoadedFile {
    let text = &piece.file.text;
    let mut report = FindingCollector::new(text);
    let trees = yaml::parse_lines(text, piece.lines.clone(), &mut report, &piece.limits, budget);
    let (mut documents, mut environments, mut references) = (Vec::new(), Vec::new(), Vec::new());
    let mut made = ReaderOutput {
        source: piece.file.source,
        documents: &mut documents,
        environments: &mut environments,
        report: &mut report,
    };
    documents::read_trees(text, &trees, &mut made);
    for document in &documents {
        let dialect = documents::dialect(document.origin);
        match (document.kind.body(), document.body.get("labels")) {
            // Labels are checked on configuration items too.
            (Type::Any, Some(labels)) if document.origin == DocumentOrigin::Native => {
                types::check(labels, &TEXT_MAP, dialect, &mut references, &mut report);
            }
            (Type::Any, _) => {}
            (ty, _) => types::check(&document.body, &ty, dialect, &mut references, &mut report),
        }
    }
    let documents = documents.into_iter().map(Arc::new).collect();
    LoadedFile { documents, environments, references, findings: report.finish() }
}
