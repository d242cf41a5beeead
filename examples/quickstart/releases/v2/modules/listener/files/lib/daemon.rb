# frozen_string_literal: true

require 'digest'
require 'socket'
require 'timeout'

# A listener with its own control commands: `ruby web.rb start|stop|status`.
#
# `status` succeeds if the listener runs with the program and the configuration on disk. If a run of Puppet was interrupted
# between writing the files and restarting the listener, the next run restarts it; a notification would be lost with the
# interrupted run. `start` replaces a listener with another program or configuration.
#
# The listener locks its pid file until it ends. A stale pid file of a machine that was switched off is not locked, even if
# another process has that pid now. To wait for the end of the listener is to wait for the lock, without polling. `start`
# returns when the port is open.
class Daemon
  ROOT = File.expand_path('..', __dir__)
  # A listener ends when its requests have ended. After this time it is killed, so that it does not block an upgrade.
  STOP_SECONDS = 5

  # Runs the command in `argv` and exits. The block serves requests; its arguments are the configuration and the open socket.
  def self.command(name, argv = ARGV, &serve)
    commands = %w[start stop status]
    abort "usage: #{name}.rb #{commands.join('|')}" unless argv.size == 1 && commands.include?(argv.first)
    exit new(name, serve).public_send(argv.first)
  rescue SystemCallError, SocketError => e
    abort "#{name}: #{e.message}"
  end

  # Reads the `key=value` lines of a file that Puppet wrote, as UTF-8 in every locale.
  def self.pairs(file)
    File.readlines(file, chomp: true, encoding: Encoding::UTF_8).to_h { |line| line.split('=', 2) }
  end

  def initialize(name, serve)
    @name = name
    @serve = serve
    @pid_file = File.open("#{ROOT}/run/#{name}.pid", File::RDWR | File::CREAT, 0o644)
    @started_with = "#{ROOT}/run/#{name}.started-with"
  end

  def status
    !free? && File.exist?(@started_with) && File.read(@started_with) == fingerprint
  end

  # The lock passes from the old listener to this command and then to the new listener: no other `start` can take it.
  def start
    return true if status

    stop
    launch
    true
  end

  def stop
    end_it unless free?
    true
  end

  private

  def free?
    @pid_file.flock(File::LOCK_EX | File::LOCK_NB) ? true : false
  end

  def end_it
    signal('TERM')
    Timeout.timeout(STOP_SECONDS) { @pid_file.flock(File::LOCK_EX) }
  rescue Timeout::Error
    signal('KILL')
    @pid_file.flock(File::LOCK_EX)
  end

  def signal(name)
    @pid_file.rewind
    Process.kill(name, Integer(@pid_file.read))
  rescue Errno::ESRCH
    # The listener has just ended; its lock is free soon.
  end

  # Digests of all files that a listener reads when it starts.
  def fingerprint
    files = Dir["#{ROOT}/{lib/*.rb,bin/#{@name}.rb,etc/#{@name}.*}"].sort
    files.map { |file| "#{Digest::SHA256.file(file).hexdigest} #{file}\n" }.join
  end

  def launch
    File.write(@started_with, fingerprint)
    config = Daemon.pairs("#{ROOT}/etc/#{@name}.conf")
    socket = TCPServer.new(config.fetch('address'), Integer(config.fetch('port')))
    pid = fork { serve(config, socket) }
    @pid_file.truncate(0)
    @pid_file.rewind
    @pid_file.write("#{pid}\n")
    @pid_file.flush
    Process.detach(pid)
  end

  # A lock belongs to the open file, which the child shares: the child keeps the lock when this command ends.
  def serve(config, socket)
    Process.setsid
    Dir.chdir('/')
    $stdin.reopen(File::NULL)
    $stdout.reopen("#{ROOT}/log/#{@name}.log", 'a')
    $stderr.reopen($stdout)
    $stdout.sync = true
    puts "#{Time.now} #{@name} of #{config['node']} at #{config['version']} listens on #{socket.local_address.inspect_sockaddr}"
    @serve.call(config, socket)
  rescue SignalException => e
    puts "#{Time.now} #{@name} ends: #{e.message}"
  end
end
