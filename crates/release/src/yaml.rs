//! Parses the YAML files of a release; errors have a position and a suggestion for misspelled keys.

use std::fmt;

use muster_core::spelling;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// A parse error on one line: `repos.yaml:3:5: …`.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct YamlError {
    pub file: String,
    pub line: Option<u64>,
    pub column: Option<u64>,
    pub message: String,
}

impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        write!(f, ": {}", self.message)
    }
}

pub(crate) fn read<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let at = error.location();
        YamlError {
            file: file.to_owned(),
            line: at.map(|at| at.line()),
            column: at.map(|at| at.column()),
            message: message(error.without_snippet()),
        }
    })
}

fn message(error: &serde_saphyr::Error) -> String {
    let serde_saphyr::Error::SerdeUnknownField { field, expected, .. } = error else {
        return error.to_string().lines().next().unwrap_or_default().to_owned();
    };
    match spelling::nearest(field, expected.iter().copied()) {
        Some(nearest) => format!("unknown key {field:?}; did you mean {nearest:?}?"),
        None => format!("unknown key {field:?}; known keys are {}", expected.join(", ")),
    }
}
