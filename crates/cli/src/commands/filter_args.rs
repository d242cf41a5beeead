//! What the verbs that list nodes can be told to choose by.

/// Which nodes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::commands) struct NodeFilter {
    /// Only those for which all terms hold, such as role=web,db state!=validated name=web* label.rack !reason
    #[arg(value_name = "FILTER")]
    terms: Vec<String>,
}

impl NodeFilter {
    pub(super) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// As the server reads it.
    pub(super) fn text(&self) -> String {
        self.terms.join(" ")
    }
}

/// How to choose, for the help of each such verb.
macro_rules! node_filter_help {
    () => {
        "\
Terms of a FILTER are joined by spaces, and all must hold:
  key=a,b    it is one of these; * stands for any text, as in name=web*
  key!=a,b   it is none of these, or not set
  key, !key  it is set; it is not set
Keys: name, role, state, reason, version, desired, liveness (connected or silent), active (true or false), phase,
failure_domain, profile, and label.NAME. A value that holds a space or a comma is quoted: 'label.owner=\"web team\"'."
    };
}

pub(super) use node_filter_help;
