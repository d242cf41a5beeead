//! Identities on the network: the certificate authority, certificates of nodes and replicas, join tokens, and TLS.
//!
//! ```text
//!  muster token create ──▶ JoinToken: id, secret, pin of the root certificate      (one line of text)
//!  muster-agent join   ──▶ TLS to a server whose root has the pin ──▶ token + request ──▶ NodeCertificate
//!  muster-agent run    ──▶ mutual TLS; the same key renews the certificate at two thirds of its life
//! ```
//!
//! - [`authority`]: issues certificates. Only servers have one; its key is a private file, never in the store.
//! - [`authority_files`]: the authorities in the directory of a server: the one in use, and that of a rotation.
//! - [`bridge`]: proof of a replaced authority that another one is its successor.
//! - [`request`]: the key that a node makes, its certificate request, and the server's check of a request.
//! - [`certificate`]: names in certificates (`spiffe://muster/env/prod/node/web1`), and reading them.
//! - [`secret_keys`]: keys that seal secrets of the configuration data, in a private file that all replicas have.
//! - [`token`]: join tokens and pins.
//! - [`tls`]: configurations of rustls for servers and clients. Certificates and roots are replaced while connections are open.
//!
//! It must never: sign a name that a request asks for (the server decides names), write a key to anything but a private file,
//! or accept a server by anything but a chain to a known root.

pub mod authority;
pub mod authority_files;
pub mod bridge;
pub mod certificate;
pub mod private_file;
pub mod request;
pub mod secret_keys;
pub mod tls;
pub mod token;
