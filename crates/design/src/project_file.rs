//! The project file `muster.yaml`: lists the directories whose files are documents of the design.

use std::path::Path;

use crate::environment::expect::{self, MapFields};
use crate::file_text::FileText;
use crate::finding::{Code, FindingCollector, Findings, quote};
use crate::yaml::{self, Limits, YamlNode};

/// Name of the file, in the root of a project.
pub(crate) const PROJECT_FILE: &str = "muster.yaml";
/// Directories of documents without a project file.
pub(crate) const DEFAULT_DIRS: [&str; 2] = ["design", "environments"];

const KEYS: &[&str] = &["design"];

/// Directories of documents, relative to the root of the project. `environments` is always one of them.
pub(crate) fn design_dirs(file: &FileText, root: &Path) -> (Vec<String>, Findings) {
    let mut report = FindingCollector::new(file);
    let documents = yaml::parse_into(file, &mut report, &Limits::HANDWRITTEN);
    let listed = documents.first().and_then(|document| listed_dirs(document, root, &mut report));
    let mut dirs = listed.unwrap_or_else(|| DEFAULT_DIRS.map(str::to_owned).to_vec());
    if !dirs.iter().any(|dir| dir == "environments") {
        dirs.push("environments".to_owned());
    }
    (dirs, report.finish())
}

/// None if the file has no list, or after reporting a finding.
fn listed_dirs(document: &YamlNode, root: &Path, report: &mut FindingCollector<'_>) -> Option<Vec<String>> {
    let expected = "a mapping such as design: [design, hardware]";
    let map = expect::mapping(document, "the project file", expected, report)?;
    let fields = MapFields::check(map, "the project file", document.span, KEYS, report);
    let list = expect::list(fields.optional("design")?, "\"design\"", "a list of directories", report)?;
    let mut dirs = Vec::new();
    for item in list {
        let Some(dir) = expect::filled_text(item, "a directory of \"design\"", report) else { continue };
        let stays_inside = Path::new(dir).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if stays_inside && root.join(dir).is_dir() {
            dirs.push(dir.to_owned());
            continue;
        }
        let why = if stays_inside { "is not a directory of the project" } else { "is not a path inside the project" };
        let help = "name directories relative to this file, without `..`";
        report.add(item.span, Code::Unreadable.finding(format!("{} {why}", quote(dir))).help(help));
    }
    Some(dirs)
}
