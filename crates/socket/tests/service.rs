//! A program and a broker of its service, which is played here.

use baton_socket::service::Service;
use baton_socket::service::channel::{Channel, Parcel};
use baton_socket::service::message::{Reply, Request, Selector, VERSION};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// The broker's end: what it hears is told to the test, and what the test says is sent.
struct Played {
    heard: Receiver<Request>,
    say: Sender<Reply>,
}

impl Played {
    #[track_caller]
    fn hear(&self) -> Request {
        self.heard.recv_timeout(Duration::from_secs(10)).expect("something is said")
    }

    fn say(&self, reply: Reply) {
        self.say.send(reply).unwrap();
    }
}

/// A program connected to a played broker.
fn play(run: impl FnOnce(&Service, &Played)) {
    let directory = std::env::temp_dir().join(format!("baton-played-{}-{:x}", std::process::id(), fastrand::u64(..)));
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("socket");
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    let ((tell, heard), (say, said)) = (channel(), channel());
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut channel = Channel::new(accept_with(&listener, SocketFlags::CLOEXEC).unwrap());
            loop {
                for reply in said.try_iter() {
                    let reply: Reply = reply;
                    channel.send(reply.to_bytes(), Vec::new()).unwrap();
                }
                match channel.receive() {
                    Ok(Some(Parcel { bytes, .. })) => match Request::from_bytes(&bytes).expect("a request") {
                        Request::Hello { .. } => {
                            channel.send(Reply::Welcome { version: VERSION }.to_bytes(), Vec::new()).unwrap();
                        }
                        request => drop(tell.send(request)),
                    },
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
                    Ok(None) | Err(_) => return,
                }
            }
        });
        let service = Service::connect(&path).unwrap();
        run(&service, &Played { heard, say });
    });
    std::fs::remove_dir_all(&directory).unwrap();
}

/// The end of an answer about so many.
fn done(ask: u64, count: u64) -> Reply {
    Reply::Done { ask, count, failed: 0, pause_us: 0 }
}

#[test]
fn an_adoption_whose_connection_is_lost_ends() {
    play(|service, broker| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        thread::scope(|scope| {
            let adopting = scope.spawn(|| service.adopt(socket.into()).map(drop));
            let Request::Adopt { seq } = broker.hear() else { panic!("an adoption was asked for") };
            broker.say(Reply::Gone { seq, id: 7, text: "the kernel kept it".into() });
            let lost = adopting.join().unwrap().unwrap_err();
            assert!(lost.fd.is_none());
            assert_eq!((lost.code.as_str(), lost.text.as_str()), ("lost", "the kernel kept it"));
        });
    });
}

#[test]
fn who_asks_gets_the_answer_to_that_question() {
    play(|service, broker| {
        thread::scope(|scope| {
            let asking = scope.spawn(|| service.handoff(Selector::All));
            let Request::Handoff { ask, .. } = broker.hear() else { panic!("a handoff was asked for") };
            // The broker dies; the next one hears the question too, and answers it late.
            broker.say(Reply::Restarted {});
            assert_eq!(asking.join().unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
            let listing = scope.spawn(|| service.bring_home(Selector::All));
            let Request::Home { ask: next, .. } = broker.hear() else { panic!("a way home was asked for") };
            assert_ne!(ask, next);
            broker.say(done(ask, 1));
            broker.say(done(next, 2));
            assert_eq!(listing.join().unwrap().unwrap().count, 2);
        });
    });
}

#[test]
fn two_threads_may_ask_at_once() {
    play(|service, broker| {
        thread::scope(|scope| {
            let ask = |port| scope.spawn(move || service.handoff(Selector::Port(port)).unwrap().count);
            let asking = [ask(1), ask(2)];
            for _ in 0..2 {
                let Request::Handoff { ask, which: Selector::Port(port) } = broker.hear() else { panic!() };
                broker.say(done(ask, u64::from(port) * 10));
            }
            assert_eq!(asking.map(|asking| asking.join().unwrap()), [10, 20]);
        });
    });
}
