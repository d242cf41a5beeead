//! Frame of the JSON and YAML that commands print: the version of the format, and the answer or the error.

use muster_core::finding::Finding;
use serde::Serialize;

use crate::problem::ProblemCode;

/// Version of the format. It grows when a field is removed, is renamed or changes its meaning; new fields do not change it.
pub const SCHEMA: u32 = 1;

/// An answer that is an object: its fields follow `schema`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ObjectOutput<'a, T> {
    schema: u32,
    #[serde(flatten)]
    answer: &'a T,
}

impl<'a, T: Serialize> ObjectOutput<'a, T> {
    pub fn new(answer: &'a T) -> Self {
        Self { schema: SCHEMA, answer }
    }
}

/// An answer that is a list.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ListOutput<'a, T> {
    schema: u32,
    items: &'a T,
}

impl<'a, T: Serialize> ListOutput<'a, T> {
    pub fn new(items: &'a T) -> Self {
        Self { schema: SCHEMA, items }
    }
}

/// The error of a command.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorOutput {
    pub schema: u32,
    pub error: CommandError,
}

#[derive(Clone, Debug, Serialize)]
pub struct CommandError {
    /// What failed.
    pub message: String,
    /// Why, the nearest cause first.
    pub causes: Vec<String>,
    /// What to do.
    pub hints: Vec<String>,
    /// Kind of problem, if a server has refused the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ProblemCode>,
    /// Findings in a design.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Exit code of the command.
    pub exit_code: u8,
}
