// Times of frames by a port's own clock: of what it sends by IEEE 1588's interface, one frame at a time, and of all that it
// receives by a field of their mbufs.
#include <errno.h>
#include <string.h>
#include <time.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>

#include "shim.h"

_Static_assert(RTE_ETH_RX_OFFLOAD_TIMESTAMP == 1 << 14, "as the Rust side has it");

// Where a received frame's time lies in its mbuf, and the flag that says that it has one; no flag: not known yet.
static int time_at;
static uint64_t has_time;

static uint64_t ns_of(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

// Finds the field; called before any port is set up to fill it.
int qd_times_find(void)
{
	return rte_mbuf_dyn_rx_timestamp_register(&time_at, &has_time) == 0 ? 0 : -rte_errno;
}

// Switches the clock of a port that runs on.
int qd_times_on(uint16_t port)
{
	return rte_eth_timesync_enable(port);
}

// A port's clock now.
int qd_times_now(uint16_t port, uint64_t *ns)
{
	struct timespec t;
	int result = rte_eth_timesync_read_time(port, &t);

	if (result == 0)
		*ns = ns_of(&t);
	return result;
}

// Sends a frame that is to be given a time. 1: sent, 0: no room, or an error number. The queue is the caller's meanwhile.
int qd_times_tx(uint16_t port, uint16_t queue, const uint8_t *frame, uint32_t len)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(qd_pool);
	char *bytes;

	if (m == NULL)
		return 0;
	bytes = rte_pktmbuf_append(m, (uint16_t)len);
	if (len > UINT16_MAX || bytes == NULL) {
		rte_pktmbuf_free(m);
		return -EMSGSIZE;
	}
	memcpy(bytes, frame, len);
	m->ol_flags |= RTE_MBUF_F_TX_IEEE1588_TMST;
	if (rte_eth_tx_burst(port, queue, &m, 1) == 1)
		return 1;
	rte_pktmbuf_free(m);
	return 0;
}

// When the last frame of those left: 1, 0 where that is not known yet, or an error number.
int qd_times_left(uint16_t port, uint64_t *ns)
{
	struct timespec t;
	int result = rte_eth_timesync_read_tx_timestamp(port, &t);

	if (result == 0)
		*ns = ns_of(&t);
	return result == 0 ? 1 : result == -EINVAL || result == -EAGAIN ? 0 : result;
}

// When a received frame came, as the device says it; 0 where it says nothing.
uint64_t qd_times_came(const void *mbuf)
{
	const struct rte_mbuf *m = mbuf;

	return (m->ol_flags & has_time) != 0 ? *RTE_MBUF_DYNFIELD(m, time_at, const uint64_t *) : 0;
}

// The mbuf of a buffer that was received; what it says holds until the buffer is received into again.
const void *qd_mbuf_of(uint32_t buffer)
{
	return qd_mbuf(buffer);
}
