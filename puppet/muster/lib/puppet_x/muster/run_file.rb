# frozen_string_literal: true

module PuppetX
  module Muster
    # Files that muster-agent provides for a run, by the names of their environment variables.
    module RunFile
      module_function

      # The path in `variable`. Raises an error with a hint if it is not set, for example when Puppet is run by hand.
      def path(variable)
        path = ENV[variable].to_s
        return path unless path.empty?

        raise Puppet::Error,
              "#{variable} is not set: muster-agent sets it for every run. " \
              'To run Puppet by hand, set it to the path of a file'
      end

      # Appends one line with one system call, so that several processes can write complete lines. The file stays open and is
      # never read, so that the cost of a line does not grow.
      def append_line(variable, line)
        target = path(variable)
        @appended ||= {}
        @appended[target] ||= File.new(target, File::WRONLY | File::APPEND | File::CREAT, 0o600)
        @appended[target].syswrite("#{line}\n")
      rescue SystemCallError => e
        raise Puppet::Error, "cannot write #{variable} (#{target}): #{e.message}"
      end

      # Replaces a file atomically.
      def replace(variable, content)
        target = path(variable)
        temporary = "#{target}.#{Process.pid}.tmp"
        File.write(temporary, content, perm: 0o600)
        File.rename(temporary, target)
      rescue SystemCallError => e
        File.delete(temporary) if temporary && File.exist?(temporary)
        raise Puppet::Error, "cannot write #{variable} (#{target}): #{e.message}"
      end
    end
  end
end
