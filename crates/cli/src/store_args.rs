//! Where the state is, for every command that opens a store itself.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muster_store::{OpenError, Store, StoreAccess};
use thiserror::Error;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Notes;
use crate::variables;

/// The options of `serve`, `up`, and of what works without a server.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Store options")]
pub struct StoreArgs {
    /// Where the state is: embedded:PATH, or etcd://HOST:PORT[,HOST:PORT…]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Speak TLS with etcd; its certificates are signed by the authority in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_ca: Option<PathBuf>,
    /// The certificate to show to etcd (PEM)
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_key: Option<PathBuf>,
    /// The user of etcd; the password comes from --store-password-file or from MUSTER_STORE_PASSWORD
    #[arg(long, value_name = "NAME", requires = "store")]
    pub store_user: Option<String>,
    /// The file that holds the user's password, and nothing else
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_password_file: Option<PathBuf>,
    /// The directory for reports and their logs; several replicas need one that all of them see [default: `blobs` in
    /// the state directory]
    #[arg(long, value_name = "DIR")]
    pub blobs: Option<PathBuf>,
}

/// Why the options of a store do not make sense together.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum StoreArgsError {
    #[error("--store-cert is of no use without --store-key")]
    NoKey,
    #[error("--store-key is of no use without --store-cert")]
    NoCert,
    #[error("there is no password for the store's user {user}")]
    NoPassword { user: String },
    #[error("--store-password-file is of no use without --store-user")]
    NoUser,
    #[error("{} is empty: it should hold the password of the store's user", path.display())]
    EmptyPassword { path: PathBuf },
    #[error("cannot read the password of the store's user from {}", path.display())]
    Password {
        path: PathBuf,
        #[source]
        source: Unreadable,
    },
    #[error("{VARIABLE} is not text", VARIABLE = variables::STORE_PASSWORD)]
    PasswordNotText,
    #[error("{option} is for etcd: {store} is a file, whose permissions say who may use it")]
    NotForFiles { option: &'static str, store: String },
}

/// An error of the file system that can be compared, for tests.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct Unreadable(#[from] io::Error);

impl PartialEq for Unreadable {
    fn eq(&self, other: &Self) -> bool {
        self.0.kind() == other.0.kind()
    }
}

impl Eq for Unreadable {}

impl StoreArgs {
    /// How to get into the store. `password` is what the environment says.
    pub fn access(&self, password: Option<OsString>) -> Result<StoreAccess, StoreArgsError> {
        self.check_kind()?;
        match (&self.store_cert, &self.store_key) {
            (Some(_), None) => return Err(StoreArgsError::NoKey),
            (None, Some(_)) => return Err(StoreArgsError::NoCert),
            (Some(_), Some(_)) | (None, None) => {}
        }
        let password = match (&self.store_user, &self.store_password_file) {
            (None, None) => None,
            (None, Some(_)) => return Err(StoreArgsError::NoUser),
            (Some(_), Some(path)) => Some(read_password(path)?),
            (Some(user), None) => {
                let password = password.ok_or_else(|| StoreArgsError::NoPassword { user: user.clone() })?;
                Some(password.into_string().map_err(|_| StoreArgsError::PasswordNotText)?)
            }
        };
        Ok(StoreAccess {
            ca: self.store_ca.clone(),
            cert: self.store_cert.clone(),
            key: self.store_key.clone(),
            user: self.store_user.clone(),
            password,
        })
    }

    /// Opens the store that was chosen, or else the one that is meant without a choice.
    pub(crate) async fn open(&self, default: Option<&str>, notes: &mut Notes) -> Result<Arc<dyn Store>, Failure> {
        let access = self.access(std::env::var_os(variables::STORE_PASSWORD)).map_err(usage)?;
        if let Some(path) = self.store_password_file.as_deref().filter(|path| others_can_read(path)) {
            notes.note(format_args!("others can read {}: chmod 600 makes the password yours alone", path.display()));
        }
        let Some(spec) = self.store.as_deref().or(default) else {
            let failure = Failure::usage("no store was chosen");
            return Err(failure.hint(
                "write --store embedded:PATH for a store in a file, or --store etcd://HOST:PORT for one that several \
                 servers share",
            ));
        };
        muster_store::open(spec, &access).await.map_err(Failure::failed)
    }

    /// Opens a store that must be there: whoever examines, saves or compares one does not mean to make it.
    pub(crate) async fn open_existing(&self, notes: &mut Notes) -> Result<Arc<dyn Store>, Failure> {
        if let Some(path) = self.store.as_deref().and_then(|store| store.strip_prefix("embedded:"))
            && !Path::new(path).exists()
        {
            return Err(Failure::failed(anyhow::anyhow!("there is no store at {path}")));
        }
        self.open(None, notes).await.map_err(|failure| {
            let in_use = matches!(
                failure.error.downcast_ref(),
                Some(OpenError::Embedded(muster_store::embedded::OpenError::InUse { .. }))
            );
            if in_use {
                failure.hint("if a server has it open, leave --store out: then that one is asked")
            } else {
                failure
            }
        })
    }

    /// A file needs no credentials; whoever gives some believes that they protect something.
    fn check_kind(&self) -> Result<(), StoreArgsError> {
        let Some(store) = self.store.as_ref().filter(|store| store.starts_with("embedded:")) else { return Ok(()) };
        let given = [
            ("--store-ca", self.store_ca.is_some()),
            ("--store-cert", self.store_cert.is_some()),
            ("--store-key", self.store_key.is_some()),
            ("--store-user", self.store_user.is_some()),
            ("--store-password-file", self.store_password_file.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(StoreArgsError::NotForFiles { option, store: store.clone() }),
            None => Ok(()),
        }
    }
}

fn usage(error: StoreArgsError) -> Failure {
    let hint = match &error {
        StoreArgsError::NoKey | StoreArgsError::NoCert => Some("etcd is shown both, or neither"),
        StoreArgsError::NoPassword { .. } => {
            Some("put it into a file that only you can read, and name that with --store-password-file")
        }
        StoreArgsError::NoUser => Some("say whose password it is with --store-user NAME"),
        StoreArgsError::EmptyPassword { .. }
        | StoreArgsError::Password { .. }
        | StoreArgsError::PasswordNotText
        | StoreArgsError::NotForFiles { .. } => None,
    };
    let failure = Failure::new(Exit::Usage, error);
    hint.into_iter().fold(failure, Failure::hint)
}

/// The content without the line's end that editors and `echo` add.
fn read_password(path: &Path) -> Result<String, StoreArgsError> {
    let text = fs::read_to_string(path)
        .map_err(|source| StoreArgsError::Password { path: path.to_owned(), source: source.into() })?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(StoreArgsError::EmptyPassword { path: path.to_owned() }),
        password => Ok(password.to_owned()),
    }
}

fn others_can_read(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o044 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETCD: &str = "etcd://127.0.0.1:2379";

    fn args(store: &str) -> StoreArgs {
        StoreArgs { store: Some(store.into()), ..StoreArgs::default() }
    }

    #[test]
    fn halves_are_refused() {
        let path = || Some(PathBuf::from("/x.pem"));
        let table = [
            (StoreArgs { store_cert: path(), ..args(ETCD) }, StoreArgsError::NoKey),
            (StoreArgs { store_key: path(), ..args(ETCD) }, StoreArgsError::NoCert),
            (
                StoreArgs { store_user: Some("root".into()), ..args(ETCD) },
                StoreArgsError::NoPassword { user: "root".into() },
            ),
            (StoreArgs { store_password_file: path(), ..args(ETCD) }, StoreArgsError::NoUser),
            (
                StoreArgs { store_ca: path(), ..args("embedded:/store") },
                StoreArgsError::NotForFiles { option: "--store-ca", store: "embedded:/store".into() },
            ),
        ];
        for (args, expected) in table {
            assert_eq!(args.access(None).unwrap_err(), expected);
        }
    }

    #[test]
    fn the_password_comes_from_the_file_or_else_from_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        let user = StoreArgs { store_user: Some("root".into()), ..args(ETCD) };
        let from_file = StoreArgs { store_password_file: Some(file.clone()), ..user.clone() };
        assert!(matches!(from_file.access(None), Err(StoreArgsError::Password { .. })));
        for (text, password) in [("secret\n", "secret"), ("secret", "secret"), (" two words \r\n", " two words ")] {
            fs::write(&file, text).unwrap();
            let access = from_file.access(Some("other".into())).unwrap();
            assert_eq!((access.user.as_deref(), access.password.as_deref()), (Some("root"), Some(password)));
        }
        fs::write(&file, "\n").unwrap();
        assert_eq!(from_file.access(None).unwrap_err(), StoreArgsError::EmptyPassword { path: file });
        assert_eq!(user.access(Some("other".into())).unwrap().password.as_deref(), Some("other"));
        // Set for other commands, and of no use here.
        assert_eq!(args(ETCD).access(Some("other".into())).unwrap().password, None);
    }
}
