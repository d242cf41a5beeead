//! How the rig itself talks to etcd.

use std::fs;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};

use crate::certificates::Certificates;

/// After this long a member that says nothing counts as away. Some members are stopped on purpose, so it is short; who
/// needs an answer asks again.
const SILENCE: Duration = Duration::from_secs(3);

/// What it takes to be let in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) certificates: Option<Certificates>,
    pub(crate) root_password: Option<String>,
}

impl Access {
    /// A client of one member. Requests to a member that is away fail; they never go to another one.
    pub(crate) async fn connect(&self, url: &str) -> Result<Client, Error> {
        Client::connect([url], Some(self.options().with_timeout(SILENCE))).await
    }

    /// The same for a stream, which may be silent for as long as there is nothing to say.
    pub(crate) async fn connect_for_stream(&self, url: &str) -> Result<Client, Error> {
        let beat = Duration::from_secs(1);
        let options = self.options().with_keep_alive(beat, SILENCE).with_keep_alive_while_idle(true);
        Client::connect([url], Some(options.with_require_leader(true))).await
    }

    fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new().with_connect_timeout(SILENCE);
        if let Some(files) = &self.certificates {
            let read = |path| fs::read(path).unwrap();
            let identity = Identity::from_pem(read(&files.client_cert), read(&files.client_key));
            let authority = Certificate::from_pem(read(&files.ca));
            options = options.with_tls(TlsOptions::new().ca_certificate(authority).identity(identity));
        }
        if let Some(password) = &self.root_password {
            options = options.with_user("root", password);
        }
        options
    }

    /// The same for etcdctl.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Some(files) = &self.certificates {
            for (flag, path) in [("--cacert", &files.ca), ("--cert", &files.client_cert), ("--key", &files.client_key)]
            {
                arguments.extend([flag.to_owned(), path.display().to_string()]);
            }
        }
        if let Some(password) = &self.root_password {
            arguments.extend(["--user".to_owned(), format!("root:{password}")]);
        }
        arguments
    }
}
