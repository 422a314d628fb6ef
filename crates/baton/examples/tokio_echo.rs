//! The same under tokio: the sockets implement the traits of `futures-io`.

use baton::port::{MemoryOptions, MemoryPort};
use baton::{Stack, StackConfig, Threads};
use futures_util::{AsyncReadExt, AsyncWriteExt};
use std::io;

pub(crate) fn main() -> io::Result<()> {
    let (server_port, client_port) = MemoryPort::wakeable_pair(MemoryOptions::default())?;
    let address = |text: &str| StackConfig::new(text.parse().expect("an address with its prefix"));
    let server = Stack::spawn(&address("10.0.0.1/24"), server_port, Threads::One)?;
    let client = Stack::spawn(&address("10.0.0.2/24"), client_port, Threads::One)?;
    let echo = "10.0.0.1:7".parse().expect("an address with its port");
    let listener = server.listen(echo)?;

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    runtime.block_on(async {
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept_async().await?;
            let mut request = Vec::new();
            stream.read_to_end(&mut request).await?;
            stream.write_all(&request).await?;
            stream.close().await
        });
        let mut stream = client.connect_async(echo).await?;
        stream.write_all(b"hello").await?;
        stream.close().await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        println!("the answer is {answer}");
        assert_eq!(answer, "hello");
        serving.await.expect("the server does not panic")
    })
}
