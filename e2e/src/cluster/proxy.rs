//! A TCP proxy between agents and a replica. It can drop responses, and end all connections at once like a firewall
//! that loses its table.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A running proxy. It and its connections end when it is dropped.
#[derive(Debug)]
pub struct AgentProxy {
    address: SocketAddr,
    shared: Arc<ProxyState>,
}

#[derive(Debug, Default)]
struct ProxyState {
    closed: AtomicBool,
    /// Requests are forwarded, responses are dropped.
    dropping: AtomicBool,
    /// Both ends of each connection.
    open: Mutex<BTreeMap<u64, [TcpStream; 2]>>,
}

impl AgentProxy {
    /// Listens on its own address, at the port of the server `to`: a server refuses requests for another port.
    pub fn start(host: std::net::Ipv4Addr, to: SocketAddr) -> Self {
        let listener = TcpListener::bind((host, to.port())).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(ProxyState::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for (number, agent) in (0..).zip(listener.incoming()) {
                if accepting.closed.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(agent) = agent else { continue };
                let shared = Arc::clone(&accepting);
                thread::spawn(move || shared.carry(number, agent, to));
            }
        });
        Self { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Drops every response: requests are processed, and their senders do not know.
    pub fn drop_responses(&self) {
        self.shared.dropping.store(true, Ordering::SeqCst);
    }

    /// Ends every connection and returns their number. New connections work at once.
    pub fn cut(&self) -> usize {
        self.shared.dropping.store(false, Ordering::SeqCst);
        // Removed here, not when its thread notices: a connection is counted once.
        let open = std::mem::take(&mut *self.shared.open.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in open.values().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        open.len()
    }
}

impl ProxyState {
    fn carry(&self, number: u64, agent: TcpStream, to: SocketAddr) {
        // The replica is down: the agent's connection ends.
        let Ok(replica) = TcpStream::connect(to) else { return };
        let _ = agent.set_nodelay(true).and_then(|()| replica.set_nodelay(true));
        let (Ok(a), Ok(b)) = (agent.try_clone(), replica.try_clone()) else { return };
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, [a, b]);
        thread::scope(|scope| {
            scope.spawn(|| pass(&agent, &replica, &AtomicBool::new(false)));
            pass(&replica, &agent, &self.dropping);
        });
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }
}

/// Forwards one direction. The other direction ends with it.
fn pass(mut from: &TcpStream, mut to: &TcpStream, dropping: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if !dropping.load(Ordering::SeqCst) && to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

impl Drop for AgentProxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        self.cut();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn answers_are_lost_until_it_is_cut() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = AgentProxy::start(Ipv4Addr::new(127, 0, 0, 2), server.local_addr().unwrap());
        let mut agent = TcpStream::connect(proxy.address).unwrap();
        let (mut replica, _) = server.accept().unwrap();
        proxy.drop_responses();
        agent.write_all(b"ping").unwrap();
        let mut said = [0; 4];
        replica.read_exact(&mut said).unwrap();
        replica.write_all(b"pong").unwrap();
        drop(replica);
        assert_eq!(agent.read(&mut said).unwrap_or(0), 0, "{said:?}");
    }

    #[test]
    fn proxy_forwards_before_and_after_a_cut() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = AgentProxy::start(Ipv4Addr::new(127, 0, 0, 2), server.local_addr().unwrap());
        for _ in 0..2 {
            let mut agent = TcpStream::connect(proxy.address).unwrap();
            let (mut replica, _) = server.accept().unwrap();
            agent.write_all(b"ping").unwrap();
            let mut said = [0; 4];
            replica.read_exact(&mut said).unwrap();
            replica.write_all(b"pong").unwrap();
            agent.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"pong");

            assert_eq!(proxy.cut(), 1);
            assert_eq!(agent.read(&mut said).unwrap_or(0), 0);
            assert_eq!(replica.read(&mut said).unwrap_or(0), 0);
        }
    }
}
