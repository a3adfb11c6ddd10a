//! A random graph built edge by edge and searched breadth-first.
//!
//! The lists of neighbours grow in random order, so while memory runs short all of it has been
//! referenced lately. The kernel's memory cgroups kill such a program with most of the swap free,
//! when its footprint is a little above the limit.

use super::report::Recorder;
use super::rng::{Rng, fold};
use super::{Args, Outcome, WorkloadError};

/// Edges that are drawn for each node; every edge stands in two lists.
const EDGES_PER_NODE: usize = 8;
/// Bytes a node takes on glibc: its list and the holes that growing lists leave, its entry in the
/// table, its distance and its place in the queue. Measured.
const NODE_BYTES: usize = 162;
/// Distance of a node that was not reached.
const FAR: u32 = u32::MAX;

/// Builds a random graph of `--mib` and searches it from node 0.
pub fn search(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let nodes = ((args.mib as usize) << 20) / NODE_BYTES;
    let mut rng = Rng::new(320);
    let graph = recorder.phase("build", |progress| {
        let mut graph: Vec<Vec<u32>> = vec![Vec::new(); nodes];
        for edge in 0..nodes * EDGES_PER_NODE {
            let (from, to) = (rng.below(nodes), rng.below(nodes));
            graph[from].push(to as u32);
            graph[to].push(from as u32);
            progress.at(edge as u64, (nodes * EDGES_PER_NODE) as u64);
        }
        graph
    });
    let (distances, queue) = recorder.phase("search", |progress| {
        let mut distances = vec![FAR; nodes];
        let mut queue: Vec<u32> = Vec::with_capacity(nodes);
        distances[0] = 0;
        queue.push(0);
        let mut head = 0;
        while let Some(&node) = queue.get(head) {
            head += 1;
            let node = node as usize;
            for &next in &graph[node] {
                if distances[next as usize] == FAR {
                    distances[next as usize] = distances[node] + 1;
                    queue.push(next);
                }
            }
            progress.at(head as u64, nodes as u64);
        }
        (distances, queue)
    });
    recorder.phase("check", |_| verify(&graph, &distances, &queue))
}

/// A breadth-first order has distances that never fall, and no edge skips a distance.
fn verify(graph: &[Vec<u32>], distances: &[u32], queue: &[u32]) -> Result<Outcome, WorkloadError> {
    if !queue.is_sorted_by_key(|&node| distances[node as usize]) {
        return Err(WorkloadError(
            "wrong contents: the search did not visit nodes by distance".into(),
        ));
    }
    let mut checksum = 0;
    for (node, neighbours) in graph.iter().enumerate() {
        let distance = distances[node];
        for &next in neighbours {
            if distances[next as usize].abs_diff(distance) > 1 {
                let text =
                    format!("wrong contents: the edge from node {node} to {next} skips a distance");
                return Err(WorkloadError(text));
            }
            checksum = fold(checksum, u64::from(next));
        }
        checksum = fold(checksum, u64::from(distance));
    }
    Ok(Outcome {
        checksum,
        verified: distances.len() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_edge_or_distance_is_found() {
        let graph = [vec![1], vec![0, 2], vec![1]];
        let sum = verify(&graph, &[0, 1, 2], &[0, 1, 2]).unwrap();
        assert!(verify(&graph, &[0, 1, 3], &[0, 1, 2]).is_err());
        assert!(verify(&graph, &[0, 1, 2], &[0, 2, 1]).is_err());
        let other = [vec![1], vec![2, 0], vec![1]];
        assert_ne!(
            verify(&other, &[0, 1, 2], &[0, 1, 2]).unwrap().checksum,
            sum.checksum
        );
    }
}
