//! A file becomes documents, each checked on its own.

use std::collections::VecDeque;
use std::num::NonZero;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::parallel::spread;
use crate::consumer::{self, Made};
use crate::document::{Document, Maker};
use crate::environment::Environment;
use crate::file_text::FileText;
use crate::finding::{Findings, Report};
use crate::types::{self, Reference, TEXT_MAP, Type};
use crate::yaml::{self, Budget, Limits};

/// What a file holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded {
    pub documents: Vec<Document>,
    pub environments: Vec<Environment>,
    /// The documents that its values name.
    pub references: Vec<Reference>,
    pub findings: Findings,
}

/// A file, and the source that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Assigned {
    pub text: Arc<FileText>,
    pub source: usize,
}

/// Larger files are cut, so that one file does not keep all processors but one waiting.
const CUT: usize = 256 << 10;

/// Reads files, on all processors. The result is in the order of the files.
pub(super) fn load(files: &[Assigned]) -> Vec<Loaded> {
    let pieces: Vec<Piece<'_>> = files.iter().enumerate().flat_map(|(at, file)| cut(at, file)).collect();
    let mut loaded: Vec<Loaded> = files.iter().map(|_| Loaded::default()).collect();
    for (piece, made) in pieces.iter().zip(work_off(&pieces)) {
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
struct Piece<'f> {
    /// The file's place among all files.
    at: usize,
    file: &'f Assigned,
    lines: Range<u32>,
    /// Its part of what the file may ask for.
    limits: Limits,
}

fn cut(at: usize, file: &Assigned) -> Vec<Piece<'_>> {
    let piece = |(lines, limits)| Piece { at, file, lines, limits };
    let size = file.text.text().len();
    if size <= CUT || consumer::is_environment_file(file.text.name()) {
        return vec![piece((file.text.all_lines(), Limits::DOCUMENTS))];
    }
    let ranges = yaml::document_ranges(&file.text, CUT);
    let share = Limits::DOCUMENTS.share(ranges.len());
    ranges.into_iter().map(|lines| piece((lines, share))).collect()
}

/// Each processor takes the next piece when it is done with one.
fn work_off(pieces: &[Piece<'_>]) -> Vec<Loaded> {
    let budget = Budget::new(Budget::OF_A_DESIGN);
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(pieces.len().div_ceil(2));
    if threads <= 1 {
        return pieces.iter().map(|piece| one(piece, &budget)).collect();
    }
    let queue: Mutex<VecDeque<usize>> = Mutex::new((0..pieces.len()).collect());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let workers = vec![(); threads];
    let mut done: Vec<(usize, Loaded)> =
        spread(&workers, |()| std::iter::from_fn(next).map(|at| (at, one(&pieces[at], &budget))).collect::<Vec<_>>())
            .into_iter()
            .flatten()
            .collect();
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, loaded)| loaded).collect()
}

fn one(piece: &Piece<'_>, budget: &Budget) -> Loaded {
    let text = &*piece.file.text;
    let mut report = Report::new(text);
    let trees = yaml::parse_lines(text, piece.lines.clone(), &mut report, &piece.limits, budget);
    let (mut documents, mut environments, mut references) = (Vec::new(), Vec::new(), Vec::new());
    let mut made = Made {
        source: piece.file.source,
        documents: &mut documents,
        environments: &mut environments,
        report: &mut report,
    };
    consumer::consume(text, &trees, &mut made);
    for document in &documents {
        let words = consumer::words(document.maker);
        match (document.kind.body(), document.body.get("labels")) {
            // Of what is somebody else's, the labels are ours.
            (Type::Any, Some(labels)) if document.maker == Maker::Native => {
                types::check(labels, &TEXT_MAP, words, &mut references, &mut report);
            }
            (Type::Any, _) => {}
            (ty, _) => types::check(&document.body, &ty, words, &mut references, &mut report),
        }
    }
    Loaded { documents, environments, references, findings: report.finish() }
}
