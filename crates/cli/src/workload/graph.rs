//! A random graph built edge by edge and searched breadth-first.
//!
//! The lists of neighbours grow in random order, so while memory runs short all of it has been
//! referenced lately. The kernel's memory cgroups kill such a program with most of the swap free,
//! when its footprint is a little above the limit.

use super::data::Data;
use super::report::Recorder;
use super::rng::{Rng, fold};
use super::{Args, Outcome, WorkloadError};

/// Edges that are drawn for each node; every edge stands in two lists.
const EDGES_PER_NODE: usize = 8;
/// Distance of a node that was not reached.
const FAR: u32 = u32::MAX;

/// What a node's list has for each neighbour.
trait Neighbour: Copy {
    /// Bytes a node takes on glibc: its list and the holes that growing lists leave, its entry in the
    /// table, its distance and its place in the queue. Measured.
    const NODE_BYTES: usize;

    fn new(node: u32) -> Self;

    fn node(self) -> usize;

    /// Whether all that is not the node's number is what it has to be.
    fn is_right(self) -> bool;
}

/// Nothing but numbers drawn at random.
impl Neighbour for u32 {
    const NODE_BYTES: usize = 162;

    fn new(node: u32) -> Self {
        node
    }

    fn node(self) -> usize {
        self as usize
    }

    fn is_right(self) -> bool {
        true
    }
}

/// The number of a node, and words that all entries have in common, as objects have a type and flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Object<const WORDS: usize, const COMMON: u64> {
    node: u64,
    common: [u64; WORDS],
}

impl<const WORDS: usize, const COMMON: u64> Neighbour for Object<WORDS, COMMON> {
    const NODE_BYTES: usize = 32 + 226 * (WORDS + 1);

    fn new(node: u32) -> Self {
        Self {
            node: node.into(),
            common: [COMMON; WORDS],
        }
    }

    fn node(self) -> usize {
        self.node as usize
    }

    fn is_right(self) -> bool {
        self.common == [COMMON; WORDS]
    }
}

/// Builds a random graph of `--mib` and searches it from node 0.
pub fn search(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    match args.data {
        Data::Incompressible => search_lists::<u32>(args, recorder),
        Data::Heap => search_lists::<Object<2, 0x0000_7f5a_4c01_9e38>>(args, recorder),
        Data::MostlyZero => search_lists::<Object<7, 0>>(args, recorder),
    }
}

fn search_lists<N: Neighbour>(
    args: &Args,
    recorder: &mut Recorder,
) -> Result<Outcome, WorkloadError> {
    let nodes = (((args.mib as usize) << 20) / N::NODE_BYTES).max(1);
    let mut rng = Rng::new(320);
    let graph = recorder.phase("build", |progress| {
        let mut graph: Vec<Vec<N>> = vec![Vec::new(); nodes];
        for edge in 0..nodes * EDGES_PER_NODE {
            let (from, to) = (rng.below(nodes), rng.below(nodes));
            graph[from].push(N::new(to as u32));
            graph[to].push(N::new(from as u32));
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
                if distances[next.node()] == FAR {
                    distances[next.node()] = distances[node] + 1;
                    queue.push(next.node() as u32);
                }
            }
            progress.at(head as u64, nodes as u64);
        }
        (distances, queue)
    });
    recorder.phase("check", |_| verify(&graph, &distances, &queue))
}

/// A breadth-first order has distances that never fall, and no edge skips a distance.
fn verify<N: Neighbour>(
    graph: &[Vec<N>],
    distances: &[u32],
    queue: &[u32],
) -> Result<Outcome, WorkloadError> {
    if !queue.is_sorted_by_key(|&node| distances[node as usize]) {
        return Err(WorkloadError(
            "wrong contents: the search did not visit nodes by distance".into(),
        ));
    }
    let mut checksum = 0;
    for (node, neighbours) in graph.iter().enumerate() {
        let distance = distances[node];
        for &next in neighbours {
            let to = next.node();
            let wrong = match distances.get(to) {
                Some(there) if there.abs_diff(distance) <= 1 && next.is_right() => None,
                Some(_) if !next.is_right() => Some("has other words beside it"),
                Some(_) => Some("skips a distance"),
                None => Some("leads nowhere"),
            };
            if let Some(wrong) = wrong {
                let text = format!("wrong contents: the edge from node {node} to {to} {wrong}");
                return Err(WorkloadError(text));
            }
            checksum = fold(checksum, to as u64);
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
        let graph = [vec![1_u32], vec![0, 2], vec![1]];
        let sum = verify(&graph, &[0, 1, 2], &[0, 1, 2]).unwrap();
        assert!(verify(&graph, &[0, 1, 3], &[0, 1, 2]).is_err());
        assert!(verify(&graph, &[0, 1, 2], &[0, 2, 1]).is_err());
        let other = [vec![1_u32], vec![2, 0], vec![1]];
        assert_ne!(
            verify(&other, &[0, 1, 2], &[0, 1, 2]).unwrap().checksum,
            sum.checksum
        );
    }

    #[test]
    fn a_changed_word_beside_an_edge_is_found() {
        type Wide = Object<2, 7>;
        let mut graph = [vec![Wide::new(1)], vec![Wide::new(0)]];
        verify(&graph, &[0, 1], &[0, 1]).unwrap();
        graph[1][0].common[1] ^= 1;
        let error = verify(&graph, &[0, 1], &[0, 1]).unwrap_err().to_string();
        assert!(
            error.contains("from node 1 to 0 has other words"),
            "{error}"
        );
        graph[1][0] = Wide::new(2);
        assert!(verify(&graph, &[0, 1], &[0, 1]).is_err());
    }
}
