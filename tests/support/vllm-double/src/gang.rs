//! The meeting of the processes of several nodes: the leader listens, and the others connect to it.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::flags::GangPlace;
use crate::log;

/// The longest wait for the others.
const MEETS_WITHIN: Duration = Duration::from_secs(60);
const RETRY_EVERY: Duration = Duration::from_millis(20);

/// Returns once all processes have met. The connections stay open.
pub async fn meet(place: &GangPlace) -> Result<Vec<TcpStream>, String> {
    let all = async {
        if place.rank == 0 {
            wait_for_others(place).await
        } else {
            connect(place).await
        }
    };
    let met = timeout(MEETS_WITHIN, all).await;
    met.unwrap_or_else(|_| {
        Err(format!(
            "torch.distributed.DistStoreError: Timed out after {} seconds waiting for clients.",
            MEETS_WITHIN.as_secs()
        ))
    })
}

async fn wait_for_others(place: &GangPlace) -> Result<Vec<TcpStream>, String> {
    let leader = &place.leader;
    let listener = TcpListener::bind(leader.as_str()).await.map_err(|error| {
        format!("torch.distributed.DistNetworkError: The server socket has failed to listen on {leader}: {error}")
    })?;
    let mut others = Vec::new();
    let mut ranks = vec![0];
    while others.len() + 1 < place.nodes as usize {
        let accepted = listener.accept().await.map_err(|error| error.to_string())?;
        let mut stream = accepted.0;
        let rank = stream.read_i64().await.map_err(|error| error.to_string())?;
        ranks.push(rank);
        others.push(stream);
    }
    ranks.sort_unstable();
    let expected: Vec<i64> = (0..place.nodes).collect();
    if ranks != expected {
        return Err(format!(
            "ValueError: the ranks are {ranks:?}, not {expected:?}"
        ));
    }
    for stream in &mut others {
        stream
            .write_u8(1)
            .await
            .map_err(|error| error.to_string())?;
    }
    log::line(&format!("world_size={} rank=0 backend=gloo", place.nodes));
    Ok(others)
}

async fn connect(place: &GangPlace) -> Result<Vec<TcpStream>, String> {
    loop {
        if let Ok(mut stream) = TcpStream::connect(place.leader.as_str()).await
            && stream.write_i64(place.rank).await.is_ok()
            && stream.read_u8().await.is_ok()
        {
            log::line(&format!(
                "world_size={} rank={} backend=gloo",
                place.nodes, place.rank
            ));
            return Ok(vec![stream]);
        }
        sleep(RETRY_EVERY).await;
    }
}
