//! Command-line arguments.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Measure the speed and memory of Muster with the real programs
///
/// A number that misses its target is marked in the table; it is not an error.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "muster-bench",
    after_help = "\
Exit codes:
0   all benchmarks have run, whatever the numbers are
1   a benchmark could not run, or a file could not be read or written

Examples:
  muster-bench
  muster-bench verify-hosts reports
  muster-bench --quick -o json
  muster-bench -o json >kept.json
  muster-bench --compare kept.json
  muster-bench --from now.json --compare kept.json --charts charts"
)]
pub(crate) struct BenchArgs {
    /// Benchmarks to run [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<Name>,
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: TableFormat,
    /// Shorter, with fewer repetitions: checks that the benchmarks work; the numbers are less precise
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print the change of each row since a kept run: the JSON of `-o json`
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,
    /// Write charts as SVG files: growth, and with --compare before and after
    #[arg(long, value_name = "DIR")]
    pub(crate) charts: Option<PathBuf>,
    /// Use the run in this file and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "quick", "dir", "programs"])]
    pub(crate) from: Option<PathBuf>,
    /// Work directory, on the disk to be measured [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Directory of `muster` and `muster-agent` [default: that of this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) programs: Option<PathBuf>,
    /// Run this command and print its resource usage; used by the program itself
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true)]
    pub(crate) watch: Option<Vec<OsString>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    Table,
    Json,
}

/// The benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// Memory of an idle agent
    AgentMemory,
    /// Activity of an idle fleet
    IdleFleet,
    /// From one node's validation to the next node's run
    WakeUp,
    /// Nodes woken by a change of data, and how often
    Data,
    /// Overhead of Muster over a run of Puppet
    Overhead,
    /// A large release downloaded by many agents
    Release,
    /// A control repository with real modules, and a second release of it
    ControlRepository,
    /// verify-hosts with 5,000 hosts
    VerifyHosts,
    /// status with 5,000 nodes
    Status,
    /// Reports per second, and fsyncs per report
    Reports,
    /// Machines that join, and reports over TLS
    Identity,
    /// Memory of the server for idle agents, and their return
    Streams,
    /// Memory of the server, and its time to start
    Server,
    /// Reports per second on etcd, against etcd's own puts
    EtcdReports,
    /// The embedded store against etcd
    EtcdStore,
    /// Agents that lose their server and reconnect to another one
    Reconnect,
    /// From one command to the last of 5,000 agents, compared with etcd's watches
    FanOut,
    /// The same through a rollout, with a grant for each
    FanOutStaged,
    /// A replica that starts beside others, on etcd
    Replica,
    /// Growth of etcd's file with reports
    Growth,
    /// From the files of a site to its checked design
    DesignCheck,
    /// One edited node in a large design
    DesignEdit,
    /// Planning and deciding rollouts, and how long they take
    RolloutEngine,
    /// A complete rollout of a simulated fleet with servers, store and agents
    RolloutFleet,
    /// Costs per node of fleets of 1,000 to 50,000 nodes
    FleetGrowth,
}

impl Name {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Name::AgentMemory => "agent-memory",
            Name::IdleFleet => "idle-fleet",
            Name::WakeUp => "wake-up",
            Name::Data => "data",
            Name::Overhead => "overhead",
            Name::Release => "release",
            Name::ControlRepository => "control-repository",
            Name::VerifyHosts => "verify-hosts",
            Name::Status => "status",
            Name::Reports => "reports",
            Name::Identity => "identity",
            Name::Streams => "streams",
            Name::Server => "server",
            Name::EtcdReports => "etcd-reports",
            Name::EtcdStore => "etcd-store",
            Name::Reconnect => "reconnect",
            Name::FanOut => "fan-out",
            Name::FanOutStaged => "fan-out-staged",
            Name::Replica => "replica",
            Name::Growth => "growth",
            Name::DesignCheck => "design-check",
            Name::DesignEdit => "design-edit",
            Name::RolloutEngine => "rollout-engine",
            Name::RolloutFleet => "rollout-fleet",
            Name::FleetGrowth => "fleet-growth",
        }
    }

    pub(crate) fn description(self) -> &'static str {
        match self {
            Name::AgentMemory => "memory of an idle agent",
            Name::IdleFleet => "what an idle fleet does",
            Name::WakeUp => "from one node's validation to the next node's run",
            Name::Data => "nodes woken by a change of data, and how often",
            Name::Overhead => "what Muster adds to a run of Puppet",
            Name::Release => "a large release on its way to many agents",
            Name::ControlRepository => "a control repository with real modules, and a second release of it",
            Name::VerifyHosts => "asking about 5,000 hosts",
            Name::Status => "one screen of 5,000 nodes",
            Name::Reports => "reports per second, and fsyncs per report",
            Name::Identity => "machines that join, and reports over TLS",
            Name::Streams => "memory of the server for idle agents, and their return",
            Name::Server => "memory of the server, and its time to start",
            Name::EtcdReports => "reports per second on etcd, against etcd's own puts",
            Name::EtcdStore => "the embedded store against etcd",
            Name::Reconnect => "agents that lose their server and go to the other one",
            Name::FanOut => "from one word to the last of 5,000 agents, against etcd's own watches",
            Name::FanOutStaged => "the same through a rollout, with a grant for each",
            Name::Replica => "a replica that starts beside others, on etcd",
            Name::Growth => "what reports make of an etcd's file",
            Name::DesignCheck => "from the files of a site to its checked design",
            Name::DesignEdit => "one edited node in a large design",
            Name::RolloutEngine => "planning and deciding rollouts, and how long they take",
            Name::RolloutFleet => "a complete rollout of a simulated fleet, with its servers, store and agents",
            Name::FleetGrowth => "costs per node of fleets of 1,000 to 50,000 nodes",
        }
    }
}

impl BenchArgs {
    /// The benchmarks that are meant, in the order of their list.
    pub(crate) fn chosen(&self) -> Vec<Name> {
        let all = Name::value_variants().iter().copied();
        all.filter(|name| self.names.is_empty() || self.names.contains(name)).collect()
    }
}
