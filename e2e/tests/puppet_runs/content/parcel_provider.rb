Puppet::Type.type(:parcel).provide(:directory) do
  desc 'Provides the versions in the files of its module.'

  VERSIONS = { 'nova' => %w[1.0 1.2] }.freeze

  def path
    File.join(resource[:directory], resource[:name])
  end

  def ensure
    File.exist?(path) ? File.read(path).strip : :absent
  end

  def ensure=(version)
    return File.delete(path) if version.to_s == 'absent'

    unless VERSIONS.fetch(resource[:name], []).include?(version.to_s)
      raise Puppet::Error, "version #{version} of #{resource[:name]} not found"
    end

    File.write(path, "#{version}\n")
  end
end
