// A card with a clock, played: preloaded, it gives the frames of any device of DPDK's times, as drivers of such cards do. Its
// clock is the machine's; CARD_APART names ports (one digit each) whose clocks go an hour ahead, CARD_FOREIGN those whose received
// frames have times of a clock that nobody can read, CARD_MUTE those that tell no departures.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>

#define PORTS 8
#define HOUR (3600ull * 1000000000)

static _Atomic uint64_t departed[PORTS];
static int field, watched[PORTS];
static uint64_t flag;

static int named(const char *list, uint16_t port)
{
	const char *ports = getenv(list);

	return ports != NULL && strchr(ports, '0' + port) != NULL;
}

static uint64_t now(uint16_t port)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec + (named("CARD_APART", port) ? HOUR : 0);
}

static uint16_t receives(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n, uint16_t max, void *arg)
{
	uint64_t time = now(port) + (named("CARD_FOREIGN", port) ? HOUR : 0);

	(void)queue, (void)max, (void)arg;
	for (uint16_t i = 0; i < n; i++) {
		mbufs[i]->ol_flags |= flag;
		*RTE_MBUF_DYNFIELD(mbufs[i], field, uint64_t *) = time;
	}
	return n;
}

static uint16_t sends(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n, void *arg)
{
	(void)queue, (void)arg;
	for (uint16_t i = 0; i < n; i++) {
		if (mbufs[i]->ol_flags & RTE_MBUF_F_TX_IEEE1588_TMST)
			departed[port] = now(port);
	}
	return n;
}

int rte_eth_dev_info_get(uint16_t port, struct rte_eth_dev_info *info)
{
	int (*real)(uint16_t, struct rte_eth_dev_info *) = dlsym(RTLD_NEXT, "rte_eth_dev_info_get");
	int result = real(port, info);

	info->rx_offload_capa |= RTE_ETH_RX_OFFLOAD_TIMESTAMP;
	return result;
}

// A card gives received frames times only where it was set up for that, and has a clock only from its start on.
int rte_eth_dev_configure(uint16_t port, uint16_t rx, uint16_t tx, const struct rte_eth_conf *conf)
{
	int (*real)(uint16_t, uint16_t, uint16_t, const struct rte_eth_conf *) = dlsym(RTLD_NEXT, "rte_eth_dev_configure");

	watched[port % PORTS] = (conf->rxmode.offloads & RTE_ETH_RX_OFFLOAD_TIMESTAMP) != 0;
	return real(port, rx, tx, conf);
}

int rte_eth_timesync_enable(uint16_t port)
{
	if (!watched[port % PORTS])
		return -EINVAL;
	rte_mbuf_dyn_rx_timestamp_register(&field, &flag);
	if (watched[port % PORTS] == 1) {
		rte_eth_add_rx_callback(port, 0, receives, NULL);
		for (uint16_t queue = 0; queue < 2; queue++)
			rte_eth_add_tx_callback(port, queue, sends, NULL);
		watched[port % PORTS] = 2;
	}
	return 0;
}

int rte_eth_timesync_read_time(uint16_t port, struct timespec *to)
{
	uint64_t time = now(port);

	*to = (struct timespec){ .tv_sec = (time_t)(time / 1000000000), .tv_nsec = (long)(time % 1000000000) };
	return 0;
}

int rte_eth_timesync_read_tx_timestamp(uint16_t port, struct timespec *to)
{
	uint64_t time = atomic_exchange(&departed[port % PORTS], 0);

	if (time == 0 || named("CARD_MUTE", port))
		return -EINVAL;
	*to = (struct timespec){ .tv_sec = (time_t)(time / 1000000000), .tv_nsec = (long)(time % 1000000000) };
	return 0;
}
