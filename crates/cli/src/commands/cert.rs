//! `muster cert …`: lists, shows and revokes the certificates of nodes.

use muster_core::names::NodeName;
use muster_wire::identity::{CertificateRow, RevokeCertificate};

use crate::args::{Globals, node_or_host_arg};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal, age};
use crate::variables::author;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    List(ListArgs),
    Show(ShowArgs),
    Revoke(RevokeArgs),
}

/// List the nodes whose machine has joined, and their certificates
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Certificates live for a day. Agents renew them at two thirds of that time; one that has ended can be renewed for some days.

Exit codes:
  0   success
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster cert list
  muster cert list -o json | jq -r '.items[] | select(.state == \"expired\") | .node'")]
pub struct ListArgs {}

/// Show the certificate of a node
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  1   no machine has joined as this node
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster cert show web1")]
pub struct ShowArgs {
    /// Node
    #[arg(value_name = "NODE", value_parser = node_or_host_arg)]
    node: String,
}

/// Revoke the identity of a node's machine
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Its open connections end within a second, its key is refused from then on, and the token that it joined with is deleted. The \
node stays in the design. A machine joins as this node again with a new token of `muster token create --node NODE`.

Exit codes:
  0   revoked, or it was revoked before
  1   no machine has joined as this node
  2   unknown: retry, which is safe

Examples:
  muster cert revoke web1
  muster cert revoke web1 --reason 'disk was stolen'
  muster cert revoke 4f2a90c17be35d084f2a90c17be35d08 --reason 'key on a public server'")]
pub struct RevokeArgs {
    /// Node, or serial number of a certificate of it that has not ended
    #[arg(value_name = "NODE|SERIAL")]
    which: String,
    /// Reason, which is shown to operators
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

pub(super) async fn list(_: &ListArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.map_err(session.client().certificates(&session.env).await)?;
    let now = terminal.now;
    terminal.out.answer(&page, |out| {
        if page.items.is_empty() {
            return;
        }
        let mut table = Table::new(["NODE", "STATE", "EXPIRES", "HOST", "JOINED", "SERIAL"]);
        for row in &page.items {
            let record = &row.certificate;
            let expires =
                if record.expires > now { format!("in {}", age(now, record.expires)) } else { "–".to_owned() };
            table.row([
                row.node.to_string(),
                row.state.as_str().to_owned(),
                expires,
                record.host.clone(),
                format!("{} ago", age(record.joined, now)),
                record.serial.clone(),
            ]);
        }
        out.table(table);
    });
    if page.items.is_empty() {
        terminal.notes.note(format_args!(
            "no machine has joined {} yet; `muster token create --node NODE` makes a token",
            session.env
        ));
    }
    Ok(Exit::Yes)
}

pub(super) async fn show(args: &ShowArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let node = session.node_name(&args.node).await?;
    let page = session.map_err(session.client().certificates(&session.env).await)?;
    let row = page.items.into_iter().find(|row| row.node == node).ok_or_else(|| not_joined(&node))?;
    terminal.out.answer(&row, |out| {
        let CertificateRow { node, state, certificate } = &row;
        out.line(format_args!("node     {node}"));
        out.line(format_args!("state    {}", state.as_str()));
        out.line(format_args!("serial   {}", certificate.serial));
        for earlier in &certificate.earlier {
            out.line(format_args!("earlier  {} until {}", earlier.serial, earlier.expires.strftime("%F %T UTC")));
        }
        out.line(format_args!("key      {}", certificate.key.0));
        out.line(format_args!("issued   {}", certificate.issued.strftime("%F %T UTC")));
        out.line(format_args!("expires  {}", certificate.expires.strftime("%F %T UTC")));
        out.line(format_args!("joined   {}", certificate.joined.strftime("%F %T UTC")));
        out.line(format_args!("host     {}", certificate.host));
        out.line(format_args!("token    {}", certificate.token));
        if let Some(revoked) = &certificate.revoked {
            let at = revoked.at.strftime("%F %T UTC");
            let reason = if revoked.reason.is_empty() { String::new() } else { format!(": {}", revoked.reason) };
            out.line(format_args!("revoked  {at} by {}{reason}", revoked.by));
        }
    });
    Ok(Exit::Yes)
}

fn not_joined(node: &NodeName) -> Failure {
    Failure::failed(anyhow::Error::msg(format!("no machine has joined as {node}")))
        .hint("`muster cert list` shows the nodes whose machine has joined")
}

pub(super) async fn revoke(args: &RevokeArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let request = RevokeCertificate { reason: args.reason.clone() };
    let done = session.client().revoke_certificate(&session.env, &args.which, &request, &author()).await;
    let done = session.map_err(done)?;
    terminal.out.answer(&done, |out| {
        let (node, serial) = (&done.row.node, &done.row.certificate.serial);
        let text = if done.changed { "revoked" } else { "was revoked before" };
        out.line(format_args!("{node}: {text} (serial {serial})"));
    });
    Ok(Exit::Yes)
}
