// How Redis is connected to: one server, the master that sentinels name, or the nodes
// of a cluster; with passwords and certificates from files.

package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Mode says what stands at the addresses.
type Mode uint8

const (
	Single Mode = iota
	Sentinel
	Cluster
)

// Secret is where a password stands: in a file, in a variable of the environment, or
// nowhere. It is read again for every connection, so that it may change.
type Secret struct {
	File string // absolute path; white space around the password does not count
	Env  string // name of the variable
}

func (s Secret) read() (string, error) {
	switch {
	case s.File != "":
		text, err := os.ReadFile(s.File)
		return strings.TrimSpace(string(text)), err
	case s.Env != "":
		text, set := os.LookupEnv(s.Env)
		if !set {
			return "", fmt.Errorf("the environment has no variable %s", s.Env)
		}
		return text, nil
	}
	return "", nil
}

func (s Secret) given() bool { return s != Secret{} }

// TLS says how servers are believed, and what they are shown. The zero TLS believes
// those whom this host believes, and shows nothing.
type TLS struct {
	CA         string // file of the authorities to believe (PEM); "": the host's
	Cert, Key  string // files of this client's certificate and key (PEM), read for every connection; "": none
	ServerName string // that the servers' certificates name; "": the host connected to
}

func (t *TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("redis.tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("redis.tls.ca: %s holds no certificate in PEM form", t.CA)
		}
	}
	if t.Cert != "" {
		if _, err := tls.LoadX509KeyPair(t.Cert, t.Key); err != nil {
			return nil, fmt.Errorf("redis.tls.cert and redis.tls.key: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			return &pair, err
		}
	}
	return c, nil
}

var errBadURL = errors.New("redis.url cannot be read: write redis://user:password@host:port/0, rediss:// (TLS) or unix:///path/to.sock?db=0; " +
	"a special character in a password is written %XX")

// dialing returns what all connections have in common, and where the first ones go.
func (o *Options) dialing() (c *redis.Options, seeds []string, err error) {
	c, seeds = &redis.Options{DB: o.DB}, o.Addrs
	if o.URL != "" {
		if c, err = redis.ParseURL(o.URL); err != nil {
			return nil, nil, errBadURL // what the library says of it may hold the password
		}
		seeds = []string{c.Addr}
	}
	if err := o.secure(c); err != nil {
		return nil, nil, err
	}
	c.Protocol, c.DisableIdentity = 2, true
	c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c.MaxRetries, c.DialerRetries = -1, 1
	c.ContextTimeoutEnabled = true
	c.DialTimeout, c.PoolTimeout = patience, o.Timeout
	c.ReadTimeout, c.WriteTimeout = max(patience, o.Timeout), max(patience, o.Timeout)
	c.PoolSize, c.MaxActiveConns, c.PipelinePoolSize = pipelines+1, pipelines+1, -1
	c.ReadBufferSize, c.WriteBufferSize = 32<<10, 32<<10
	return c, seeds, nil
}

// secure puts into c who the agent is and whom it believes.
func (o *Options) secure(c *redis.Options) error {
	if o.TLS != nil {
		config, err := o.TLS.config()
		if err != nil {
			return err
		}
		c.TLSConfig = config
	} else if c.TLSConfig != nil {
		c.TLSConfig.ServerName = "" // the host connected to: a cluster has many
	}
	if o.Username != "" {
		c.Username = o.Username
	}
	if !o.Password.given() {
		return nil
	}
	if _, err := o.Password.read(); err != nil {
		return fmt.Errorf("the password of redis: %w", err)
	}
	user := c.Username
	c.CredentialsProviderContext = func(context.Context) (string, string, error) {
		password, err := o.Password.read()
		return user, password, err
	}
	return nil
}

// at returns the options for the server at addr.
func (r *Redis) at(addr string) *redis.Options {
	c := *r.dial
	c.Addr = addr
	return &c
}

// failover returns the options for the master that the sentinels at seeds name.
func (o *Options) failover(c *redis.Options, seeds []string) (*redis.FailoverOptions, error) {
	password, err := o.SentinelPassword.read()
	if err != nil {
		return nil, fmt.Errorf("the password of the sentinels: %w", err)
	}
	return &redis.FailoverOptions{
		MasterName: o.Master, SentinelAddrs: seeds,
		SentinelUsername: o.SentinelUsername, SentinelPassword: password,
		Username: c.Username, Password: c.Password, CredentialsProviderContext: c.CredentialsProviderContext,
		DB: c.DB, TLSConfig: c.TLSConfig, Protocol: c.Protocol, DisableIdentity: c.DisableIdentity,
		MaxRetries: c.MaxRetries, DialerRetries: c.DialerRetries, ContextTimeoutEnabled: c.ContextTimeoutEnabled,
		DialTimeout: c.DialTimeout, PoolTimeout: c.PoolTimeout, ReadTimeout: c.ReadTimeout, WriteTimeout: c.WriteTimeout,
		PoolSize: c.PoolSize, MaxActiveConns: c.MaxActiveConns, PipelinePoolSize: c.PipelinePoolSize,
		ReadBufferSize: c.ReadBufferSize, WriteBufferSize: c.WriteBufferSize,
	}, nil
}

// counting counts the connections that a client opens.
type counting struct{ r *Redis }

// DialHook implements redis.Hook.
func (h counting) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.r.dials.Add(1)
		return next(ctx, network, addr)
	}
}

// ProcessHook implements redis.Hook.
func (counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
