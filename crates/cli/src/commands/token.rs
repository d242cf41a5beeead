//! `muster token …`: makes, lists and deletes the tokens that machines join with.

use clap::ArgGroup;
use jiff::SignedDuration;
use muster_core::identity::TokenScope;
use muster_core::names::{Role, TokenId};
use muster_wire::identity::{CreateToken, TokenRow};

use crate::args::{Globals, duration_arg, node_or_host_arg, role_arg};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal, age, count};
use crate::variables::author;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Delete(DeleteArgs),
}

/// Make a join token; its secret is printed once and is not stored
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("target").required(true), after_help = "\
A token for a node is used once. If a machine has joined as that node before, the new one replaces it. A token for a role \
gives each machine a node of that role that has none: the one with the machine's host name, or else the first. If there is \
none left, the machine waits.

Exit codes:
  0   made
  1   refused: the role or node does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster token create --node web1
  muster token create --role web --uses 20 --ttl 1h --hosts 'web*.example.org'
  muster-agent join https://muster.example.org:7300 TOKEN         on the machine")]
pub struct CreateArgs {
    /// Node that the machine becomes
    #[arg(long, value_name = "NODE", value_parser = node_or_host_arg, group = "target")]
    node: Option<String>,
    /// Role of the nodes that machines become
    #[arg(long, value_name = "ROLE", value_parser = role_arg, group = "target")]
    role: Option<Role>,
    /// Number of machines that can join with it
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "node", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    uses: u32,
    /// Time until it expires, such as 30m, 1h or 7d; at most 30d
    #[arg(long, value_name = "TIME", value_parser = duration_arg, default_value = "1h")]
    ttl: SignedDuration,
    /// Host names of the machines; `*` stands for any text
    #[arg(long, value_name = "PATTERN", conflicts_with = "node")]
    hosts: Option<String>,
}

/// List the join tokens, without their secrets
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster token list
  muster token list -o json | jq -r '.items[] | select(.usable) | .id'")]
pub struct ListArgs {}

/// Delete a join token; machines that have joined with it stay
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   deleted
  1   there is no such token
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster token delete 0123456789abcdef")]
pub struct DeleteArgs {
    /// Id of the token
    #[arg(value_name = "ID")]
    id: TokenId,
}

pub(super) async fn create(args: &CreateArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let scope = match (&args.node, &args.role) {
        (Some(node), _) => TokenScope::Node { node: session.node_name(node).await? },
        (None, Some(role)) => TokenScope::Role { role: role.clone(), hosts: args.hosts.clone() },
        (None, None) => return Err(Failure::usage("give --node or --role")),
    };
    let request = CreateToken { scope, uses: args.uses, seconds: u64::try_from(args.ttl.as_secs()).unwrap_or(0) };
    let made = session.map_err(session.client().create_token(&session.env, &request, &author()).await)?;
    terminal.out.answer(&made, |out| out.line(format_args!("{}", made.token)));
    let (target, uses) = (target(&made.row), count(made.row.uses as usize, "machine"));
    let expires = made.row.expires.strftime("%F %T UTC");
    terminal.notes.note(format_args!("for {target}: {uses}, until {expires}; the secret is not shown again"));
    Ok(Exit::Yes)
}

pub(super) async fn list(_: &ListArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.map_err(session.client().tokens(&session.env).await)?;
    let now = terminal.now;
    terminal.out.answer(&page, |out| {
        if page.items.is_empty() {
            return;
        }
        let mut table = Table::new(["ID", "SCOPE", "USES", "EXPIRES", "BY"]);
        for row in &page.items {
            let expires =
                if row.expires > now { format!("in {}", age(now, row.expires)) } else { "expired".to_owned() };
            table.row([row.id.to_string(), target(row), row.uses.to_string(), expires, row.by.clone()]);
        }
        out.table(table);
    });
    if page.items.is_empty() {
        terminal.notes.note(format_args!("{} has no join tokens; make one with `muster token create`", session.env));
    }
    Ok(Exit::Yes)
}

pub(super) async fn delete(args: &DeleteArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    session.map_err(session.client().delete_token(&session.env, &args.id).await)?;
    terminal.out.line(format_args!("deleted {}", args.id));
    Ok(Exit::Yes)
}

fn target(row: &TokenRow) -> String {
    match &row.scope {
        TokenScope::Node { node } => format!("node {node}"),
        TokenScope::Role { role, hosts: None } => format!("role {role}"),
        TokenScope::Role { role, hosts: Some(hosts) } => format!("role {role}, hosts {hosts}"),
    }
}
