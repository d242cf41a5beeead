//! `muster ca …`: shows the certificate authority of the server.

use crate::args::Globals;
use crate::connect::ServerConnection;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Show(ShowArgs),
}

/// Show the pin and the root certificate of the server
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The root certificate is public. Clients on other machines need a copy: --ca-file or MUSTER_CA_FILE.

Exit codes:
  0   success
  1   the server has no certificate authority: it was started with `muster up`
  2   unknown: the server cannot be reached

Examples:
  muster ca show
  muster ca show -o json | jq -r .root > muster-ca.crt")]
pub struct ShowArgs {}

pub(super) async fn show(_: &ShowArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let authority = server.client.authority().await.map_err(|error| server.failure(error))?;
    terminal.out.answer(&authority, |out| {
        out.line(format_args!("pin      {}", authority.pin));
        out.line(format_args!("expires  {}", authority.expires.strftime("%F %T UTC")));
        out.gap();
        out.line(format_args!("{}", authority.root.trim_end()));
    });
    Ok(Exit::Yes)
}
