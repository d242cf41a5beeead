//! The catalogue of findings.
//!
//! A code is for ever: it is what people search for, and what their scripts match. A code that is no longer used is
//! not given to another finding.

use std::fmt;

use serde::{Serialize, Serializer};

/// Whether what was read can be used all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

macro_rules! catalogue {
    ($($code:ident = $id:literal $severity:ident $meaning:literal,)*) => {
        /// What sort of thing a finding is about. M00xx: files and YAML; M01xx: environment files.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $meaning] $code,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &[Code] = &[$(Code::$code,)*];

            /// The stable name: `M0103`.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$code => $id,)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(Code::$code => Severity::$severity,)* }
            }

            /// What the finding means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$code => $meaning,)* }
            }
        }
    };
}

catalogue! {
    Unreadable = "M0001" Error "The file cannot be read.",
    TooLarge = "M0002" Error "The file, or what it unfolds to, is larger than a design may be.",
    NotUtf8 = "M0003" Error "The file holds bytes that are not UTF-8 text.",
    Syntax = "M0004" Error "The file is not YAML.",
    Tab = "M0005" Error "A line is indented with a tab, which YAML does not allow.",
    DuplicateKey = "M0006" Error "A mapping holds the same key twice.",
    KeyNotText = "M0007" Error "A key is empty, a list or a mapping.",
    Tag = "M0008" Error "A value carries a YAML tag; Muster knows none.",
    MergeKey = "M0009" Error "A mapping holds the merge key `<<`, which is not part of YAML 1.2.",
    AliasExpansion = "M0010" Error "The aliases of the file unfold to more than is accepted.",
    TooDeep = "M0011" Error "Values are nested too deep.",
    UnknownAlias = "M0012" Error "An alias names no anchor that is complete and in the same document.",
    TooManyFindings = "M0013" Error "There are more findings than are shown.",

    EmptyFile = "M0101" Error "The file holds no document.",
    SeveralDocuments = "M0102" Error "The file holds more than one document.",
    UnknownKey = "M0103" Error "A key is not one of those that are known there.",
    MissingKey = "M0104" Error "A key that must be there is not.",
    WrongType = "M0105" Error "A value is of another type than is expected there.",
    FormatVersion = "M0106" Error "The file is written for another version of the format.",
    RoleName = "M0107" Error "A role's name is not legal.",
    Cardinality = "M0108" Error "A cardinality is out of range.",
    AfterUnknown = "M0109" Error "A role comes after one that is not in the file.",
    AfterCycle = "M0110" Error "Roles come after each other in a circle.",
    StackName = "M0111" Error "The stack's name is not legal.",
    NoRoles = "M0112" Error "The environment has no roles.",
    EmptyText = "M0113" Error "A text that must say something is empty.",
    RolloutUnused = "M0114" Warning "The section `rollout` is read by nothing yet.",
    EnvironmentName = "M0115" Error "The file's name is not a legal name of an environment.",
    HostNameTooLong = "M0116" Error "The host names of a role's nodes would be too long.",
    AfterTwice = "M0117" Warning "A role is listed twice in `after`.",
    TooManyNodes = "M0118" Error "The environment has more nodes than one environment may have.",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        assert!(Code::ALL.is_sorted_by(|a, b| a.as_str() < b.as_str()));
    }
}
