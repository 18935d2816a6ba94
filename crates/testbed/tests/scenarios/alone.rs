//! Scenarios that are alone on the machine. Tests begin in the order of their names, so these are the first, one after the other:
//! elsewhere each would wait for those beside it to end, with nothing beginning meanwhile. What they do stands with their subject.

use crate::{documents, workers};

#[test]
fn the_how_to_about_papers_runs_as_printed() {
    documents::the_how_to_about_papers_runs_as_printed();
}

#[test]
fn one_two_and_four_workers_lose_nothing_at_half_load() {
    workers::one_two_and_four_workers_lose_nothing_at_half_load();
}

#[test]
fn an_idle_router_sleeps_and_the_first_frame_wakes_it() {
    workers::an_idle_router_sleeps_and_the_first_frame_wakes_it();
}

/// Whose memory is of huge pages where there are any.
mod pages {
    use crate::pages::{af_xdp, dpdk, memif, tap};
    use crate::workers;

    #[test]
    fn nothing_is_left_of_a_killed_router() {
        af_xdp::nothing_is_left_of_a_killed_router();
    }

    #[test]
    fn devices_without_a_peer_show_what_the_path_itself_costs() {
        dpdk::devices_without_a_peer_show_what_the_path_itself_costs();
    }

    #[test]
    fn a_device_that_cannot_be_opened_is_told_of_with_its_place_and_the_others_work() {
        dpdk::a_device_that_cannot_be_opened_is_told_of_with_its_place_and_the_others_work();
    }

    #[test]
    fn a_router_that_dies_is_found_again_by_its_peer() {
        memif::a_router_that_dies_is_found_again_by_its_peer();
    }

    #[test]
    fn deaths_of_a_peer_under_load_leave_nothing_behind() {
        memif::deaths_of_a_peer_under_load_leave_nothing_behind();
    }

    #[test]
    fn nothing_is_left_of_a_killed_router_but_what_is_persistent() {
        tap::nothing_is_left_of_a_killed_router_but_what_is_persistent();
    }

    #[test]
    fn a_router_that_is_killed_under_load_comes_back_and_leaves_nothing_behind() {
        workers::pages::a_router_that_is_killed_under_load_comes_back_and_leaves_nothing_behind();
    }
}
