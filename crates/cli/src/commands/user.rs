//! `muster user …`: makes, lists and changes users and their tokens.

use jiff::SignedDuration;
use muster_core::names::{EnvName, TokenId, UserName};
use muster_core::user::{RoleScope, UserRole, UserRoles};
use muster_wire::users::{ChangeUser, CreateUser, CreateUserToken, UserResponse, WhoAmI};

use crate::args::{Globals, duration_arg};
use crate::connect::ServerConnection;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal, age};
use crate::variables::author;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Role(RoleArgs),
    Disable(DisableArgs),
    Enable(EnableArgs),
    /// Make, list and revoke the tokens of a user
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum TokenCommand {
    Create(CreateTokenArgs),
    List(ListTokensArgs),
    Revoke(RevokeTokenArgs),
}

/// Make a user
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Roles, each with the rights of those before it:
  viewer    reads everything but secrets
  operator  changes designs, data, releases and versions; pauses, cordons, requests runs
  approver  lets a rollout pass a gate that waits for a person
  admin     makes join tokens, revokes certificates, backs up, restores, destroys; with --in '*' also users
The role counts in one environment, or with --in '*' in all of them and for the server.

Exit codes:
  0   made, or there was the same user before
  1   there is another user of this name
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster user create ann --role operator --in prod
  muster user create bob --role admin --in '*'")]
pub struct CreateArgs {
    /// Name of the user
    #[arg(value_name = "NAME")]
    name: UserName,
    /// Role
    #[arg(long, value_name = "ROLE")]
    role: UserRole,
    #[command(flatten)]
    scope: ScopeArg,
    /// Identity at the OIDC provider, such as an address of e-mail
    #[arg(long, value_name = "TEXT")]
    identity: Option<String>,
}

/// Environment of a role. `--env` is a global option; this one also takes `*`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ScopeArg {
    /// Environment of the role, or * for all and the server
    #[arg(long = "in", value_name = "ENV", value_parser = scope_arg)]
    scope: Option<RoleScope>,
}

impl ScopeArg {
    fn read(&self, globals: &Globals) -> Result<RoleScope, Failure> {
        let of_globals = || globals.env.clone().map(RoleScope::Env);
        self.scope.clone().or_else(of_globals).ok_or_else(|| {
            Failure::usage("the environment of the role is missing")
                .hint("give --in ENV, or --in '*' for all environments and the server")
        })
    }
}

fn scope_arg(text: &str) -> Result<RoleScope, String> {
    RoleScope::try_from(text.to_owned()).map_err(|_| format!("{}; or *", EnvName::RULE))
}

/// List the users, their roles and tokens
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster user list
  muster user list -o json | jq -r '.items[] | select(.disabled) | .name'")]
pub struct ListArgs {}

/// Give a user a role in an environment, or take it away
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   changed, or it was like this before
  1   there is no such user
  2   unknown: retry, which is safe

Examples:
  muster user role ann approver --in prod
  muster user role ann none --in prod
  muster user role ann admin --in '*'")]
pub struct RoleArgs {
    /// User
    #[arg(value_name = "NAME")]
    name: UserName,
    /// Role, or `none`
    #[arg(value_name = "ROLE", value_parser = role_or_none)]
    role: RoleOrNone,
    #[command(flatten)]
    scope: ScopeArg,
}

#[derive(Clone, Copy, Debug)]
struct RoleOrNone(Option<UserRole>);

fn role_or_none(text: &str) -> Result<RoleOrNone, String> {
    if text == "none" {
        return Ok(RoleOrNone(None));
    }
    text.parse()
        .map(|role| RoleOrNone(Some(role)))
        .map_err(|error: muster_core::user::UnknownUserRole| error.to_string())
}

/// Refuse all tokens of a user from now on
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   disabled, or was disabled before
  1   there is no such user
  2   unknown: retry, which is safe

Examples:
  muster user disable ann
  muster user disable ann --reason 'left the company'")]
pub struct DisableArgs {
    /// User
    #[arg(value_name = "NAME")]
    name: UserName,
    /// Reason, which is shown to operators
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Accept the tokens of a disabled user again
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   enabled, or was enabled before
  1   there is no such user
  2   unknown: retry, which is safe

Examples:
  muster user enable ann")]
pub struct EnableArgs {
    /// User
    #[arg(value_name = "NAME")]
    name: UserName,
}

/// Make a token for a user, or for yourself
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The token is printed once. The user logs in with it: `muster login URL`.

Exit codes:
  0   success
  1   there is no such user, or the user is disabled
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster user token create ann --ttl 90d --note laptop
  muster user token create                              # for yourself")]
pub struct CreateTokenArgs {
    /// User [default: yourself]
    #[arg(value_name = "NAME")]
    name: Option<UserName>,
    /// Time until it expires, such as 12h or 90d; at most 366d, and 30d for yourself
    #[arg(long, value_name = "TIME", value_parser = duration_arg, default_value = "30d")]
    ttl: SignedDuration,
    /// Purpose, which is shown in lists
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

/// List the tokens of a user, without their secrets
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  1   there is no such user
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster user token list ann")]
pub struct ListTokensArgs {
    /// User [default: yourself]
    #[arg(value_name = "NAME")]
    name: Option<UserName>,
}

/// Revoke a token of a user
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   revoked
  1   there is no such token
  2   unknown: retry, which is safe

Examples:
  muster user token revoke ann 0123456789abcdef")]
pub struct RevokeTokenArgs {
    /// User
    #[arg(value_name = "NAME")]
    name: UserName,
    /// Id of the token
    #[arg(value_name = "ID")]
    id: TokenId,
}

pub(super) async fn run(command: &Command, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    match command {
        Command::Create(args) => create(args, globals, terminal).await,
        Command::List(_) => list(globals, terminal).await,
        Command::Role(args) => role(args, globals, terminal).await,
        Command::Disable(args) => disable(args, globals, terminal).await,
        Command::Enable(args) => enable(args, globals, terminal).await,
        Command::Token(TokenCommand::Create(args)) => create_token(args, globals, terminal).await,
        Command::Token(TokenCommand::List(args)) => list_tokens(args, globals, terminal).await,
        Command::Token(TokenCommand::Revoke(args)) => revoke_token(args, globals, terminal).await,
    }
}

async fn create(args: &CreateArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let roles = UserRoles([(args.scope.read(globals)?, args.role)].into());
    let user = CreateUser { name: args.name.clone(), roles, identity: args.identity.clone() };
    let made = server.client.create_user(&user, &author()).await.map_err(|error| server.failure(error))?;
    answer(&made, terminal);
    terminal.notes.note(format_args!("make a token with `muster user token create {}`", args.name));
    Ok(Exit::Yes)
}

async fn list(globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let page = server.client.users().await.map_err(|error| server.failure(error))?;
    let now = terminal.now;
    terminal.out.answer(&page, |out| {
        let mut table = Table::new(["NAME", "ROLES", "STATE", "TOKENS", "CREATED"]);
        for row in &page.items {
            let state = if row.disabled.is_some() { "disabled" } else { "enabled" };
            let usable = row.tokens.iter().filter(|token| token.usable).count();
            let created = format!("{} ago", age(row.created, now));
            table.row([row.name.to_string(), roles(&row.roles), state.to_owned(), usable.to_string(), created]);
        }
        if !page.items.is_empty() {
            out.table(table);
        }
    });
    if page.items.is_empty() {
        terminal.notes.note(format_args!("there are no users; make one with `muster user create`"));
    }
    Ok(Exit::Yes)
}

async fn role(args: &RoleArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let roles = [(args.scope.read(globals)?, args.role.0)].into();
    change(&args.name, ChangeUser { roles, ..ChangeUser::default() }, globals, terminal).await
}

async fn disable(args: &DisableArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let request = ChangeUser { disabled: Some(true), reason: args.reason.clone(), ..ChangeUser::default() };
    change(&args.name, request, globals, terminal).await
}

async fn enable(args: &EnableArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    change(&args.name, ChangeUser { disabled: Some(false), ..ChangeUser::default() }, globals, terminal).await
}

async fn change(
    name: &UserName,
    request: ChangeUser,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let changed = server.client.change_user(name, &request, &author()).await;
    answer(&changed.map_err(|error| server.failure(error))?, terminal);
    Ok(Exit::Yes)
}

fn answer(user: &UserResponse, terminal: &mut Terminal) {
    terminal.out.answer(user, |out| {
        let state = if user.user.disabled.is_some() { ", disabled" } else { "" };
        let roles = roles(&user.user.roles);
        let roles = if roles.is_empty() { "no role".to_owned() } else { roles };
        out.line(format_args!("{}: {roles}{state}", user.user.name));
    });
}

fn roles(roles: &UserRoles) -> String {
    let shown: Vec<String> = roles.0.iter().map(|(scope, role)| format!("{role} in {scope}")).collect();
    shown.join(", ")
}

async fn create_token(args: &CreateTokenArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let name = own_name(&server, args.name.as_ref()).await?;
    let seconds = u64::try_from(args.ttl.as_secs()).unwrap_or(0);
    let request = CreateUserToken { seconds, note: args.note.clone() };
    let made = server.client.create_user_token(&name, &request).await.map_err(|error| server.failure(error))?;
    terminal.out.answer(&made, |out| out.line(format_args!("{}", made.token)));
    let expires = made.row.expires.strftime("%F %T UTC");
    terminal.notes.note(format_args!(
        "for {name}, until {expires}; the secret is not shown again; log in with it: `muster login URL`"
    ));
    Ok(Exit::Yes)
}

async fn list_tokens(args: &ListTokensArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let name = own_name(&server, args.name.as_ref()).await?;
    let found = server.client.user(&name).await.map_err(|error| server.failure(error))?;
    let now = terminal.now;
    terminal.out.answer(&found.user.tokens, |out| {
        let mut table = Table::new(["ID", "EXPIRES", "NOTE"]);
        for row in &found.user.tokens {
            let left = if row.expires > now { format!("in {}", age(now, row.expires)) } else { "expired".to_owned() };
            table.row([row.id.to_string(), left, row.note.clone()]);
        }
        if !found.user.tokens.is_empty() {
            out.table(table);
        }
    });
    if found.user.tokens.is_empty() {
        terminal.notes.note(format_args!("{name} has no tokens"));
    }
    Ok(Exit::Yes)
}

async fn revoke_token(args: &RevokeTokenArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let revoked = server.client.revoke_user_token(&args.name, &args.id).await;
    revoked.map_err(|error| server.failure(error))?;
    terminal.out.line(format_args!("revoked {}", args.id));
    Ok(Exit::Yes)
}

/// The given user, or the one who is logged in.
async fn own_name(server: &ServerConnection, given: Option<&UserName>) -> Result<UserName, Failure> {
    match given {
        Some(name) => Ok(name.clone()),
        None => match server.client.who_am_i().await.map_err(|error| server.failure(error))? {
            WhoAmI::User { user, .. } => Ok(user.name),
            WhoAmI::Administrator => {
                Err(Failure::usage("the name of the user is missing").hint("an administrator names the user"))
            }
        },
    }
}
