fn main() {
    pair::echo(20_000, 64);
}
mod pair {
    use baton_consumer::consumer::{Conn, SocketEvent};
    use baton_port::memory::{MemoryOptions, MemoryPort};
    use baton_socket::host::{Host, HostConfig};
    use baton_tcp::time::Instant;
    pub struct Pair {
        pub a: Host<MemoryPort>,
        pub b: Host<MemoryPort>,
        now: u64,
    }
    impl Pair {
        pub fn new() -> Pair {
            let (a, b) = MemoryPort::pair(MemoryOptions::default());
            let host = |address: &str, port| Host::new(&HostConfig::new(address.parse().unwrap()), port).unwrap();
            Pair { a: host("10.0.0.1/24", a), b: host("10.0.0.2/24", b), now: 0 }
        }
        pub fn step(&mut self) {
            self.now += 50_000;
            self.a.poll(Instant(self.now)).unwrap();
            self.b.poll(Instant(self.now)).unwrap();
        }
        pub fn connect(&mut self) -> (Conn, Conn) {
            self.b.listen("10.0.0.2:7".parse().unwrap(), 16).unwrap();
            self.step();
            self.a.connect("10.0.0.2:7".parse().unwrap(), None).unwrap();
            let (mut client, mut server) = (None, None);
            for _ in 0..100 {
                self.step();
                while let Some(event) = self.a.next_event() {
                    if let SocketEvent::Opening { conn, .. } = event {
                        client = Some(conn);
                    }
                }
                while let Some(event) = self.b.next_event() {
                    if let SocketEvent::Accepted { conn, .. } = event {
                        server = Some(conn);
                    }
                }
                if let (Some(client), Some(server)) = (client, server)
                    && self.a.stream(client).unwrap().is_established()
                {
                    return (client, server);
                }
            }
            panic!("no connection");
        }
    }
    pub fn echo(rounds: u64, size: usize) {
        let mut pair = Pair::new();
        let (client, server) = pair.connect();
        let started = std::time::Instant::now();
        let mut buf = vec![0; size];
        for _ in 0..rounds {
            pair.a.write(client, &vec![1; size]).unwrap();
            let mut got = 0;
            while got < size {
                pair.step();
                while pair.b.next_event().is_some() {}
                if let Ok(n) = pair.b.read(server, &mut buf) {
                    pair.b.write(server, &buf[..n]).unwrap();
                }
                pair.step();
                while pair.a.next_event().is_some() {}
                if let Ok(n) = pair.a.read(client, &mut buf) {
                    got += n;
                }
            }
        }
        println!("{:.1} ns a round trip", started.elapsed().as_nanos() as f64 / rounds as f64);
    }
}
